"""What moves between workers: batches, trajectories, draws, and what an episode means."""
