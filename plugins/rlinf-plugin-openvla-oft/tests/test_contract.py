"""What every policy must do, of this one: in both layouts, with and without what may be added."""

from __future__ import annotations

import pytest

from rlinf_core.testing import PolicyContract


class _OFT(PolicyContract):
    options: dict = {}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _made(self, make_policy, make_spaces, observe):
        self._make, self._spaces, self._observe = make_policy, make_spaces, observe

    def spaces(self):
        return self._spaces()

    def observation(self, rows):
        return self._observe(rows)

    def make(self, spaces, chunk):
        return self._make(chunk, **self.options)


class TestWithoutStopToken(_OFT):
    pass


class TestWithStopToken(_OFT):
    # Its critic reads a position that moves with the padding, so it is left out.
    options = {"stop_token": True, "logprob_level": "action", "value_head": False}  # noqa: RUF012


class TestEverything(_OFT):
    options = {"film": True, "proprio": True, "temperature": 1.6}  # noqa: RUF012
