"""Ray as a runtime. What a run does with it is in ``rlinf_plugin_ray.runtime``."""
