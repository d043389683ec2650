"""TensorBoard as a logger. What is logged is in ``rlinf_plugin_tensorboard.logger``."""
