"""Timers, layers inside a running model, peak memory, and measured beside predicted."""
