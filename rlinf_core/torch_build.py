"""What the installed torch was built for, told without importing it."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any


def torch_build() -> str:
    """Return what torch was built for, such as ``"CUDA 13.0"`` or ``"cpu"``, without importing it.

    Read from its own ``version.py``; empty where that cannot be read.
    """
    try:
        spec = importlib.util.find_spec("torch")
        places = spec.submodule_search_locations if spec else None
        source = Path(next(iter(places or ())), "version.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (StopIteration, ImportError, ValueError, OSError, SyntaxError):
        return ""
    built: dict[str, Any] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                built[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)):
                built[name] = value
    kinds = {"cuda": "CUDA", "hip": "ROCm", "xpu": "XPU"}
    known = [f"{shown} {built[key]}" for key, shown in kinds.items() if built.get(key)]
    return known[0] if known else "cpu" if "cuda" in built else ""
