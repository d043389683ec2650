"""Finding, loading and naming plugins: discovery, manager, resolve, records and settings.

This package knows specs and hooks and no library. Its way in is
:class:`rlinf_core.plugins.manager.PluginManager`.
"""
