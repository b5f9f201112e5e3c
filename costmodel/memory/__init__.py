"""Graph -> peak memory of inference and training, saved activations, and the gain of recomputing them."""
