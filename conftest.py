"""Skips tests that need a device or a library which this machine does not have."""

from __future__ import annotations

import ctypes.util

import pytest


def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:  # the bare environment
        return False
    return bool(torch.cuda.is_available())


def _has_opengl() -> bool:
    return any(ctypes.util.find_library(name) for name in ("OSMesa", "EGL"))


_NEEDS = {"gpu": (_has_cuda, "no CUDA device"), "opengl": (_has_opengl, "no OSMesa, no EGL")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for mark, (present, reason) in _NEEDS.items():
        marked = [item for item in items if mark in item.keywords]
        if marked and not present():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))
