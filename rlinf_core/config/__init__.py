"""Run files: their schema, how they are composed and checked, and where each value came from.

The way in is :func:`rlinf_core.config.validate.load_run`. Plugin authors subclass
:class:`rlinf_core.config.schema.Config`, so importing this package imports nothing else.
"""
