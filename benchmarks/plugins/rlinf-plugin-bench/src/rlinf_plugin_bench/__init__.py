"""The peers' environments (``benchmarks/peers/tasks.py``) as a simulator: like against like."""
