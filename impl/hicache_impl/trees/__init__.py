"""Prefix trees: which pages of which prefix are on device and on host."""
