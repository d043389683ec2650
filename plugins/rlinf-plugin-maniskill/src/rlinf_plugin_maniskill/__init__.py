"""ManiSkill as a simulator for rlinf. Importing it imports nothing else."""
