"""Proximal policy optimisation. The whole update is in ``rlinf_plugin_ppo.ppo``."""
