"""What the tests of rl share: ranks that really add up, and a way to split a batch by rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from rlinf_core.rl import Reduce


class Ranks:
    """Runs one function on several threads whose ``reduce`` sums over all of them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=20)
        self._parts: list[Tensor | None] = [None] * size

    def reduce_of(self, rank: int) -> Reduce:
        def reduce(part: Tensor) -> Tensor:
            self._parts[rank] = part
            self._barrier.wait()  # all parts are there
            total = torch.stack([p for p in self._parts if p is not None]).sum(0)
            self._barrier.wait()  # all have read them
            return total

        return reduce

    def run(self, work: Callable) -> list:
        results: dict[int, object] = {}
        errors: list[BaseException] = []

        def body(rank: int) -> None:
            try:
                results[rank] = work(rank, self.reduce_of(rank))
            except BaseException as error:
                errors.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=body, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[rank] for rank in range(self.size)]


@pytest.fixture(scope="session")
def run_on_ranks() -> Callable[..., list]:
    """``run_on_ranks(work, size)``: the results of ``work(rank, reduce)``, by rank."""

    def run(work: Callable, size: int) -> list:
        return Ranks(size).run(work)

    return run


@pytest.fixture
def micro_batches() -> Callable[[int, int], Sequence[slice]]:
    """``micro_batches(rows, size)``: slices of ``size`` rows that cover ``rows``."""
    return lambda rows, size: [slice(i, i + size) for i in range(0, rows, size)]
