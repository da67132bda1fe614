"""Deterministic simulation: unmodified threaded code, all its threads and ranks in one process, every switch chosen."""
