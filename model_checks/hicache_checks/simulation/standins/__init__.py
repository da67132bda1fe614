"""Stand-ins for modules of the standard library and of torch, with the same names; they talk to the current world.

To one thread each behaves as the real one does. What is left out ends the run with NotSimulated, which is no finding.
Wherever they differ from the real things, docs/stand-ins.md says so, and a test shows it on both.
"""
