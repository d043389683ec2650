"""What the plugin provides."""


class Code:
    """An algorithm in name only."""
