"""Group relative policy optimisation. The whole update is in ``rlinf_plugin_grpo.grpo``."""
