"""How fast the implementation is, beside the limits of the machine. Measures; never judges."""
