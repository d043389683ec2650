"""Components that only benchmarks need: the peers' own environments, and work of a known cost."""
