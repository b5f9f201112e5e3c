"""Graph -> kernels that torch.compile's Inductor makes of it."""
