"""Module -> report: latency of each mode, layers, reasons, recompilations."""
