"""Graph -> plan: the blocks of a model, what each costs by each backend, and the oracle that decides among them."""
