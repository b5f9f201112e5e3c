"""Whole models -> records: latency and compile time, in one process or in processes of their own."""
