"""What a configured ``openvla`` weighs, and what it refuses before a run starts; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf_core.api import Capability, Facts, Level, Unknown
from rlinf_plugin_openvla.architecture import linear
from rlinf_plugin_openvla.config import OpenVLAConfig, VLAConfig
from rlinf_plugin_openvla.published import Published, choose_cameras

BYTES = {"bfloat16": 2, "float32": 4}
GRIPPER = {
    "libero": {"gripper": "-1 opens, 1 closes"},
    "widowx": {"gripper": "1 opens, -1 closes"},
    "as-is": {},
}


def facts(config: OpenVLAConfig, upstream: Mapping[str, Any]) -> Facts:
    """Return parameters and bytes; refuse what the checkpoint cannot do.

    Args:
        config: of the model.
        upstream: facts of the sections before this one; ``simulator`` gives action width and
            cameras, ``chunk`` the number of actions a call.

    Raises:
        CheckpointError: the folder is none of OpenVLA.
        RequestError: chunk, statistics or cameras do not fit.
    """
    return describe(config, upstream, Published(config.checkpoint), default_chunk=1)


def describe(
    config: VLAConfig,
    upstream: Mapping[str, Any],
    published: Published,
    default_chunk: int | None,
    more: int = 0,
    replay: int = 0,
) -> Facts:
    """Return the facts of OpenVLA or of a model that stands on it.

    Args:
        config: of the model.
        upstream: as in :func:`facts`.
        published: the checkpoint.
        default_chunk: actions in a chunk where nobody says; None where it must be said.
        more: parameters beside OpenVLA's and the critic's.
        replay: bytes of a row's replay beside OpenVLA's.
    """
    chunk = int(upstream.get("chunk", 1))
    published.require_chunk(config.trained_chunk, default_chunk, chunk)
    spaces = getattr(upstream.get("simulator"), "spaces", Unknown("there is no simulator"))
    known = not isinstance(spaces, Unknown)
    width = spaces.action.shape[0] if known else None
    statistics = published.actions(config.unnorm_key, width)
    cameras = choose_cameras(config.cameras, spaces) if known else config.cameras or ("one",)

    architecture = published.architecture
    critic = linear(architecture.hidden, 512) + linear(512, 128) + 128
    parameters = architecture.parameters + more + critic * config.value_head
    tokens = chunk * statistics.width
    logp = {"token": tokens, "action": chunk, "chunk": 1}[config.logprob_level]
    images = len(cameras) * architecture.image_size**2 * 3
    prompt = (8 + 1) * config.prompt_length
    return Facts(
        parameters=parameters,
        bytes=BYTES[config.dtype] * parameters,
        act_bytes=4 * (logp + config.value_head) + images + prompt + 8 * tokens + replay,
        capabilities={
            Capability.VALUE: Level.FULL if config.value_head else Level.UNSUPPORTED,
        },
        conventions={"image_rotation": "0", **GRIPPER[config.gripper]},
    )
