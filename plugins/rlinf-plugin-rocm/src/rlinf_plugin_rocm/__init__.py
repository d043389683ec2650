"""AMD GPUs with ROCm. How they are found is in ``rlinf_plugin_rocm.accelerator``."""
