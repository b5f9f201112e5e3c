"""Module -> graph of ATen operators, by one forward pass on meta tensors or by another frontend."""
