"""Graph -> plan: blocks, their cost by each backend, and the oracle that chooses a backend for each."""
