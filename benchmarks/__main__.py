"""``python -m benchmarks [NAME ...] [--quick]``: run benchmarks, in the order of their names."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

from benchmarks import suite


def main() -> int:
    """Run what was asked for; return 1 if a benchmark failed, after the others have run."""
    names = sorted(module.name for module in pkgutil.iter_modules(suite.__path__))
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all")
    parser.add_argument("--quick", action="store_true", help="as little as shows that it runs")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    failed = []
    for name in options.names or names:
        try:
            bench = importlib.import_module(f"benchmarks.suite.{name}").measure(options.quick)
            print(bench.write())
        except Exception as error:
            print(f"[{name}] failed: {type(error).__name__}: {error}", file=sys.stderr)
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
