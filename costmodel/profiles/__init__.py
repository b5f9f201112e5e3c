"""Profiles of devices: their directories, summaries and predictors, and calibrated hosts by name."""
