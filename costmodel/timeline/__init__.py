"""Kernel times -> latency of each mode, through a model of the launch queue."""
