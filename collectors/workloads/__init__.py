"""Cases to measure: operators, blocks and models, by workload name."""
