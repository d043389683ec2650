"""What this plugin provides, as data; imports no TensorBoard."""

from __future__ import annotations

from rlinf_core.api import ComponentSpec, hookimpl


@hookimpl
def rlinf_loggers() -> list[ComponentSpec]:
    """Provide the logger ``tensorboard``."""
    return [
        ComponentSpec(
            name="tensorboard",
            summary="Writes metrics, hyperparameters, pictures and videos for TensorBoard",
            target="rlinf_plugin_tensorboard.logger:TensorBoardLogger",
            config="rlinf_plugin_tensorboard.config:TensorBoardConfig",
            requires=("tensorboard",),
        )
    ]
