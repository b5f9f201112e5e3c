"""Processes that compile and measure, their environment, and noise of the host."""
