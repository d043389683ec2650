"""Options of the simulator ``sketch``. A new option goes here, with its help below it."""

from pydantic import Field

from rlinf_core.api import Config


class SketchConfig(Config):
    """A cart on a rail."""

    max_episode_steps: int = Field(default=50, ge=1, le=1_000_000)
    """Steps after which an episode is truncated."""

    push: float = Field(default=0.05, gt=0.0)
    """How much the strongest action changes the velocity, in metres per step."""

    processes: int | None = Field(default=None, ge=1, le=1024)
    """Processes that share the environments. By default one per processor."""

    train_states: int = Field(default=100_000, ge=1, le=1_000_000_000)
    """Number of initial states to train on."""

    test_states: int = Field(default=100, ge=1, le=1_000_000_000)
    """Number of initial states to evaluate on; none of them is a training state."""
