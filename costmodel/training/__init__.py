"""Measured kernels -> networks and trees, cross-fitted by fold."""
