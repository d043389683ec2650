"""The core of rlinf: nouns, flow and plugin machinery. It imports nothing heavy.

Plugin authors import :mod:`rlinf_core.api`; everything else is private to the core.
"""

__version__ = "0.1.0"
