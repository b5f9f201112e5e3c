"""What to measure on a device, and the sweeps that measure it."""
