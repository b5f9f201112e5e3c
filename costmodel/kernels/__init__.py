"""Graph -> kernels that eager execution launches; the kernel, the unit of prediction."""
