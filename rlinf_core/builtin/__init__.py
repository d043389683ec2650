"""The core's own components, found through the same entry point and hooks as any plugin's."""
