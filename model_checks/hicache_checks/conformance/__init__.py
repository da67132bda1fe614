"""Holding an implementation to the specification: its logs, the order of events, the monitor, the adapter."""
