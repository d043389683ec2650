"""Any Gymnasium environment as a simulator. It is made in ``rlinf_plugin_gymnasium.simulator``."""
