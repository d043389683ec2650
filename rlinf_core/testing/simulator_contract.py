"""What every simulator must do, as tests. Subclass, say how to make one, and run pytest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from rlinf_core.data.batch import Batch
from rlinf_core.protocols.simulator import Autoreset, EnvSlots, Simulator, Step


class SimulatorContract:
    """Tests of :class:`rlinf_core.protocols.simulator.Simulator`; see the package's docstring."""

    envs = 3
    """How many environments the tests use; at least 2."""
    steps = 4
    """How many steps they take; an episode should be longer."""

    def make(self, slots: EnvSlots) -> Simulator:
        """Return a simulator over ``slots``; subclasses must override this."""
        raise NotImplementedError

    @pytest.fixture
    def simulator(self) -> Iterator[Simulator]:
        """A simulator that is closed after the test."""
        made = self.make(EnvSlots(tuple(range(self.envs)), seed=0))
        yield made
        made.close()

    def actions(self, simulator: Simulator, seed: int = 0, chunk: int = 1) -> Tensor:
        """Return random actions [N, C, A] within bounds."""
        generator = torch.Generator().manual_seed(seed)
        space = simulator.spaces.action
        low, high = torch.as_tensor(space.low), torch.as_tensor(space.high)
        share = torch.rand(self.envs, chunk, len(low), generator=generator)
        return low + share * (high - low)

    def begin(self, simulator: Simulator, first: int = 0, split: str = "train") -> Batch:
        """Reset every environment, each to a state of its own."""
        states = simulator.initial_states(split)
        chosen = [states[(first + row) % len(states)] for row in range(self.envs)]
        return simulator.reset(torch.ones(self.envs, dtype=torch.bool), chosen)

    # --- the contract ----------------------------------------------------------------------------

    def test_shapes_and_types_of_observations_are_those_of_its_spaces(self, simulator: Any) -> None:
        obs = self.begin(simulator)
        assert len(obs) == self.envs
        for path, leaf in obs.leaves():
            if isinstance(leaf, list):
                continue
            space = simulator.spaces.observation
            for part in path.split("."):
                space = space[part]
            assert tuple(leaf.shape) == (self.envs, *space.shape), path
            assert str(leaf.dtype).removeprefix("torch.") == space.dtype.name, path

    def test_a_step_has_the_shapes_and_types_of_the_protocol(self, simulator: Any) -> None:
        self.begin(simulator)
        step: Step = simulator.step(self.actions(simulator))
        assert step.reward.dtype == torch.float32
        for name in ("reward", "terminated", "truncated", "success", "valid"):
            tensor = getattr(step, name)
            assert tuple(tensor.shape) == (self.envs, 1), name
            assert name == "reward" or tensor.dtype == torch.bool, name
        assert step.valid.all()

    def test_an_initial_state_alone_decides_the_first_observation(self, simulator: Any) -> None:
        first = self.begin(simulator, first=2)
        self.begin(simulator, first=1)
        for seed in range(self.steps):
            simulator.step(self.actions(simulator, seed))
        again = self.begin(simulator, first=2)
        assert_equal(first, again)

    def test_an_initial_state_and_actions_decide_the_whole_episode(self, simulator: Any) -> None:
        def roll() -> list[Step]:
            self.begin(simulator, first=2)
            return [simulator.step(self.actions(simulator, seed)) for seed in range(self.steps)]

        first = roll()
        self.begin(simulator, first=0)
        simulator.step(self.actions(simulator, 99))
        for before, after in zip(first, roll(), strict=True):
            assert_equal(before.obs, after.obs)
            assert torch.equal(before.reward, after.reward)

    def test_splits_do_not_share_states(self, simulator: Any) -> None:
        train, test = (self.begin(simulator, split=split) for split in ("train", "test"))
        with pytest.raises(AssertionError):
            assert_equal(train, test)

    def test_a_masked_reset_leaves_the_others_alone(self, simulator: Any) -> None:
        self.begin(simulator)
        before = simulator.step(self.actions(simulator)).obs
        mask = torch.zeros(self.envs, dtype=torch.bool)
        mask[1] = True
        after = simulator.reset(mask, [simulator.initial_states("train")[3]])
        assert_equal(before.rows(~mask), after.rows(~mask))

    def test_returned_tensors_are_not_overwritten_by_later_steps(self, simulator: Any) -> None:
        self.begin(simulator)
        step = simulator.step(self.actions(simulator, 1))
        kept = step.obs.map(torch.clone), step.reward.clone()
        simulator.step(self.actions(simulator, 2))
        assert_equal(step.obs, kept[0])
        assert torch.equal(step.reward, kept[1])

    def test_an_ended_environment_waits_where_it_does_not_reset_itself(
        self, simulator: Any
    ) -> None:
        if simulator.autoreset is not Autoreset.DISABLED:
            pytest.skip("it resets itself")
        self.begin(simulator)
        for seed in range(10_000):
            step = simulator.step(self.actions(simulator, seed))
            if (step.terminated | step.truncated).all():
                break
        waiting = simulator.step(self.actions(simulator, 0))
        assert not waiting.valid.any()
        assert not waiting.reward.any()
        assert_equal(step.obs, waiting.obs)

    def test_closing_twice_is_no_error(self) -> None:
        made = self.make(EnvSlots(tuple(range(self.envs)), seed=0))
        made.close()
        made.close()


def assert_equal(one: Batch, other: Batch) -> None:
    """Fail unless two batches are equal bit for bit."""
    for (path, a), (_, b) in zip(one.leaves(), other.leaves(), strict=True):
        same = torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
        assert same, f"{path} differs"
