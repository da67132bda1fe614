"""The array back end: kernels over whole frontiers, in NumPy or as torch tensors."""
