"""A Gaussian actor-critic of two small multi-layer perceptrons, for observations of state."""
