"""Processes that compile and measure, the environment they run in, and how disturbed the host is."""
