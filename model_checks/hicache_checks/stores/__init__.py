"""The conformance suite for stores of pages: what a store is asked, and what it is put through."""
