"""Latency of whole models, measured and recorded."""
