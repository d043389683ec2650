"""A training backend in plain PyTorch: one process, one device."""
