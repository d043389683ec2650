"""What the workers of a run do. Named by string in the flow, imported where they run."""
