"""When things would happen: a simulation of schedules, and what parts of a run cost.

``simulate.py`` replays tasks on workers and devices, whatever they are; ``costs.py`` reads from a
run's timeline what its tasks took. What the tasks of an iteration are is the run's own affair
(``rlinf_core.runs.predict``). Nothing here imports torch.
"""
