"""Making a ManiSkill task: with a renderer or without, quietly, and never with a question.

Imported where a simulation runs; it imports torch and all of ManiSkill.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mani_skill.envs  # noqa: F401  registers the tasks
import torch
from mani_skill import logger
from mani_skill.utils import assets, common, download_asset
from mani_skill.utils.registration import REGISTERED_ENVS

from rlinf_core.api import SimulatorError, did_you_mean
from rlinf_plugin_maniskill.headless import no_renderer

torch.set_num_threads(1)  # the machine's cores belong to the environments
logger.setLevel(logging.ERROR)  # each task warns of initial poses, in each process


class MissingAssets(SimulatorError):
    """A task needs files that were not downloaded.

    Args:
        task: name of the task.
        uid: what ManiSkill calls the files.
    """

    def __init__(self, task: str, uid: str) -> None:
        place = os.environ.get("MS_ASSET_DIR") or "~/.maniskill"
        self.command = f"python -m mani_skill.utils.download_asset -y {uid}"
        super().__init__(
            f"{task} needs files that are not in {place} (MS_ASSET_DIR); to fetch them: "
            + self.command
        )


def make_task(name: str, render_backend: str = "none", **options: Any) -> Any:
    """Return a ManiSkill ``BaseEnv``, without Gymnasium's wrappers.

    Args:
        name: of a registered task; ``"module:Name-v1"`` imports ``module`` first.
        render_backend: ``"none"`` builds it without any renderer.
        options: as ManiSkill's own; those that are None are left to the task.

    Raises:
        SimulatorError: there is no such task.
        MissingAssets: as it says.
    """
    spec = find_spec(name)
    given = {key: value for key, value in options.items() if value is not None}
    with building(name, render_backend):
        return spec.make(render_backend=render_backend, **given)


@contextlib.contextmanager
def building(name: str, render_backend: str) -> Iterator[None]:
    """Within, a task may build its scene: when it is made and when an episode begins."""
    scene = no_renderer() if render_backend == "none" else contextlib.nullcontext()
    with scene, _no_questions(name):
        yield


def find_spec(name: str) -> Any:
    """Return ManiSkill's registration of a task."""
    module, colon, bare = name.rpartition(":")
    if colon:
        __import__(module)
    if bare not in REGISTERED_ENVS:
        near = did_you_mean(bare, REGISTERED_ENVS)
        raise SimulatorError(f"ManiSkill has no task {bare!r}.{near}")
    return REGISTERED_ENVS[bare]


def begin(task: Any, seed: int) -> Any:
    """Start the episode that belongs to ``seed``, whatever was played before; return what is seen.

    In a new scene each time. A plain reset leaves some things as they are: joints that a task does
    not set, contacts, and what PhysX's solver remembers of them, so that an episode would depend
    on those before it. A scene takes some 20 ms where the zygote has frozen Python's collector.

    Args:
        task: on the processor.
        seed: below 2**31.
    """
    return task.reset(seed=seed, options={"reconfigure": True})[0]


def flat(parts: Any) -> torch.Tensor:
    """Return ManiSkill's nested dict of observations as one tensor [N, S], as it would."""
    return common.flatten_state_dict(parts, use_torch=True)


class _no_questions(contextlib.AbstractContextManager[None]):  # noqa: N801
    """Turn ManiSkill's question whether to download, and files that are not there, into errors."""

    def __init__(self, task: str) -> None:
        self._task, self._asks = task, download_asset.prompt_yes_no

    def __enter__(self) -> None:
        download_asset.prompt_yes_no = self._refuse

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        download_asset.prompt_yes_no = self._asks
        if isinstance(error, FileNotFoundError) and error.filename:
            self._find_source(Path(error.filename))
        _, told, uid = str(error).rpartition("download_asset ")
        if told and isinstance(error, RuntimeError):
            raise MissingAssets(self._task, uid) from None

    def _refuse(self, question: str) -> bool:
        # "Environment PickSingleYCB-v1 requires ..." or "Robot widowxai has ..."
        raise MissingAssets(self._task, question.split()[1])

    def _find_source(self, path: Path) -> None:
        """Name where a file comes from that a task looked for without asking."""
        for uid, source in assets.DATA_SOURCES.items():
            place = Path(source.output_dir) / (source.target_path or uid)
            if place == path or place in path.parents:
                raise MissingAssets(self._task, uid) from None
