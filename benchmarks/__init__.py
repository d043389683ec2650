"""Side-by-side measurements: ours against peers and against limits, in one run, as ratios.

``python -m benchmarks [NAME ...] [--quick]`` (or ``nox -s bench -- ...``) runs benchmarks and
writes ``benchmarks/results/NAME.json``; ``docs/generate.py`` makes the page of them. Where what is:

* ``suite/`` one file per benchmark; a new one is a new file with ``measure(bench)``;
* ``bench.py`` what a benchmark measures with: rounds, samples, comparisons, the JSON;
* ``environments.py`` the peers' own environments, from ``requirements-*.txt``;
* ``peers/``, ``kernels/``, ``channels/`` and ``weights/`` what runs in those environments, so none
  of it imports rlinf_core but what is called ``ours.py``;
* ``ours.py`` and ``plain.py`` our own contestant of whole runs, and the same run in a plain loop;
* ``page.py`` the page, from the JSON alone.
"""
