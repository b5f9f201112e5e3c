"""Measured models -> costs of a host, prediction intervals and scores: a profile."""
