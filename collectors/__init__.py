"""Collect measurements on a device: which cases to measure, and the processes that measure them."""
