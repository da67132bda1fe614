"""The compiler's front end: the rules of a bound specification as typed expressions over a bit-packed state."""
