"""Older designs on the same threads: each is the reference but for what differs, with an adapter of its own."""
