"""What every policy must do, as tests. Subclass, say how to make one, and run pytest."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.data.draws import Draws
from rlinf_core.protocols.policy import LogprobLevel, Mode
from rlinf_core.protocols.simulator import Spaces


class PolicyContract:
    """Tests of :class:`rlinf_core.protocols.policy.Policy`; see the package's docstring."""

    chunk = 2
    """Actions in a chunk."""
    tolerance = 1e-5
    """How far log-probabilities may differ between batch sizes."""

    def spaces(self) -> Spaces:
        """Return what the policy is made for; override for images and instructions."""
        return Spaces(
            spaces.Dict({"state": spaces.Box(-np.inf, np.inf, (5,), np.float32)}),
            spaces.Box(-1.0, 1.0, (3,), np.float32),
        )

    def observation(self, rows: int) -> Batch:
        """Return an observation of ``rows`` rows."""
        return Batch({"state": torch.randn(rows, 5, generator=torch.Generator().manual_seed(1))})

    def make(self, spaces: Spaces, chunk: int) -> Any:
        """Return a policy; subclasses must override this."""
        raise NotImplementedError

    def policy(self) -> Any:
        """Return a policy with weights that are always the same."""
        torch.manual_seed(0)
        return self.make(self.spaces(), self.chunk).eval()

    def draws(self, rows: int, first: int = 0) -> Draws:
        """Return numbers for ``rows`` rows."""
        return Draws(0, range(first, first + rows), [3] * rows)

    # --- the contract ----------------------------------------------------------------------------

    @torch.no_grad()
    def test_act_has_the_shapes_of_the_protocol(self) -> None:
        policy = self.policy()
        act = policy.act(self.observation(4), self.draws(4), Mode.SAMPLE)
        width = self.spaces().action.shape[0]
        shapes = {
            LogprobLevel.TOKEN: (4, self.chunk, width),
            LogprobLevel.ACTION: (4, self.chunk),
            LogprobLevel.CHUNK: (4,),
        }
        assert act.actions.shape == (4, self.chunk, width)
        assert act.actions.dtype == torch.float32
        assert act.logp.shape == shapes[policy.logprob_level]
        assert act.value is None or act.value.shape == (4,)
        assert len(act.replay) == 4

    @torch.no_grad()
    def test_actions_stay_within_bounds(self) -> None:
        act = self.policy().act(self.observation(64), self.draws(64), Mode.SAMPLE)
        space = self.spaces().action
        assert (act.actions >= torch.as_tensor(space.low)).all()
        assert (act.actions <= torch.as_tensor(space.high)).all()

    @torch.no_grad()
    def test_case_m07_replayed_log_probs_are_equal_where_shapes_are(self) -> None:
        policy = self.policy()
        act = policy.act(self.observation(6), self.draws(6), Mode.SAMPLE)
        evaluation = policy.evaluate(act.replay)
        assert torch.equal(evaluation.logp, act.logp)
        pair = policy.evaluate(act.replay.rows(slice(2, 4)))
        assert torch.allclose(pair.logp, act.logp[2:4], atol=self.tolerance, rtol=0)

    @torch.no_grad()
    def test_a_rows_actions_do_not_depend_on_its_batch(self) -> None:
        policy, obs = self.policy(), self.observation(6)
        together = policy.act(obs, self.draws(6), Mode.SAMPLE).actions
        alone = policy.act(obs.rows(slice(3, 4)), self.draws(1, first=3), Mode.SAMPLE).actions
        assert torch.allclose(together[3:4], alone, atol=self.tolerance, rtol=0)

    @torch.no_grad()
    def test_greedy_needs_no_random_numbers_and_repeats(self) -> None:
        policy, obs = self.policy(), self.observation(3)
        one, other = (policy.act(obs, None, Mode.GREEDY).actions for _ in range(2))
        assert torch.equal(one, other)

    @torch.no_grad()
    def test_different_draws_give_different_actions(self) -> None:
        policy, obs = self.policy(), self.observation(3)
        one, other = (policy.act(obs, self.draws(3, f), Mode.SAMPLE).actions for f in (0, 100))
        assert not torch.equal(one, other)

    def test_evaluate_has_gradients_for_what_was_sampled(self) -> None:
        policy = self.policy()
        with torch.no_grad():
            act = policy.act(self.observation(4), self.draws(4), Mode.SAMPLE)
        evaluation = policy.evaluate(act.replay)
        total: Tensor = evaluation.logp.sum()
        if evaluation.value is not None:
            total = total + evaluation.value.sum()
        torch.autograd.backward(total)
        moved = [p for p in policy.parameters() if p.grad is not None and bool(p.grad.any())]
        assert moved

    @torch.no_grad()
    def test_kept_statistics_move_only_when_told(self) -> None:
        policy = self.policy()
        before = {k: v.clone() for k, v in policy.state_dict().items()}
        policy.act(self.observation(8), self.draws(8), Mode.SAMPLE)
        assert all(torch.equal(v, before[k]) for k, v in policy.state_dict().items())
        obs = Batch.stack([self.observation(8).without_strings()] * 2)
        policy.observe(obs, torch.ones(2, 8, dtype=torch.bool), lambda x: x)  # must not raise
