"""Module -> measurements: timers, layers inside a running model, peak memory, predictions beside measurements."""
