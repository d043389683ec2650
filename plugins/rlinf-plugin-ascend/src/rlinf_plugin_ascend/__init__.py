"""Ascend NPUs. How they are found is in ``rlinf_plugin_ascend.accelerator``."""
