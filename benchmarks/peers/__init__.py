"""Contestants that run in the peers' environments; they import nothing of rlinf_core."""
