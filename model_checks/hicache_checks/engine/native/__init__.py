"""The native back end: kernels in C, compiled once by the system's compiler, and a breadth-first search in threads."""
