"""Runs: what happens in which order. The flow of a run reads top to bottom in one file each."""
