"""Where a model's memory goes, in inference and in training, and what recomputing instead of keeping would save."""
