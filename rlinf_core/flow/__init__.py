"""Flow: what a run does when and where: its graph, its plan, and the timeline of what it did."""
