"""What every policy must do, of this one: at each level of log-probs, with a critic and without."""

from __future__ import annotations

import pytest

from rlinf_core.testing import PolicyContract


class _OpenVLA(PolicyContract):
    options: dict = {}  # noqa: RUF012
    chunk = 2

    @pytest.fixture(autouse=True)
    def _made(self, make_policy, make_spaces, observe):
        self._make, self._spaces, self._observe = make_policy, make_spaces, observe

    def spaces(self):
        return self._spaces()

    def observation(self, rows):
        return self._observe(rows)

    def make(self, spaces, chunk):
        return self._make(chunk, **self.options)


class TestTokens(_OpenVLA):
    pass


class TestActions(_OpenVLA):
    options = {"logprob_level": "action", "value_head": False}  # noqa: RUF012


class TestChunks(_OpenVLA):
    options = {"logprob_level": "chunk", "temperature": 1.6}  # noqa: RUF012
