"""Programs of the processes that a store may have for itself. They are run by path, and import nothing of ours."""
