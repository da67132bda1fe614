"""Prefix trees: which pages of which prefix are on device and on host.

`core` is what all share; `components` is what a model may need beside the pages; `hiradix`, `hi_mamba` and `unified`
say which of them they have a place for.
"""
