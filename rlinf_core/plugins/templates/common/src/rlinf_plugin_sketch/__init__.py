"""The sketch_kind ``sketch`` for rlinf. Importing it imports nothing else."""
