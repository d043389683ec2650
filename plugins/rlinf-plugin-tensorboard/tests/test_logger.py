"""Event files are read back as TensorBoard reads them."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
from rlinf_plugin_tensorboard import plugin
from rlinf_plugin_tensorboard.config import TensorBoardConfig
from rlinf_plugin_tensorboard.logger import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from rlinf_core.api import RunInfo

CONFIG = {
    "name": "reach",
    "seed": 3,
    "algorithm": {"name": "ppo", "gamma": 0.9, "dual_clip": None},
    "model": {"hidden": [8, 8]},
    "evaluation": {"video": True},
}


@pytest.fixture
def start(tmp_path):
    """Return a function that makes a logger of one try; files are closed at the end."""
    made = []

    def start(first_step: int = 0, **options) -> TensorBoardLogger:
        info = RunInfo("reach", tmp_path, CONFIG, first_step, 10)
        made.append(TensorBoardLogger(TensorBoardConfig(**options), info))
        return made[-1]

    yield start
    for logger in made:
        logger.close("done")


@pytest.fixture
def read(tmp_path):
    """Return a function that reads all files of the run, as TensorBoard does."""

    def read(folder: str = "tensorboard") -> EventAccumulator:
        return EventAccumulator(str(tmp_path / folder), size_guidance={"images": 0}).Reload()

    return read


def files(folder: Path) -> list[Path]:
    return sorted((folder / "tensorboard").iterdir())


def points(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


# --- what the plugin says -------------------------------------------------------------------------


def test_listing_and_configuring_import_no_tensorboard_and_no_torch():
    code = (
        "import sys, rlinf_plugin_tensorboard.plugin as p; [s] = p.rlinf_loggers(); "
        "assert s.name == 'tensorboard'; import rlinf_plugin_tensorboard.config; "
        "assert not {'tensorboard', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_logging_imports_neither_tensorflow_nor_torch(tmp_path):
    (tmp_path / "tensorflow.py").write_text("open('imported', 'w'); raise ImportError('no')")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, '.'); "
        "from rlinf_core.api import RunInfo; "
        "from rlinf_plugin_tensorboard.config import TensorBoardConfig; "
        "from rlinf_plugin_tensorboard.logger import TensorBoardLogger; "
        "log = TensorBoardLogger(TensorBoardConfig(), RunInfo('a', Path('run'), {'a': 1}, 0, 1)); "
        "log.log(1, {'a': 1.0}); log.close('done'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert not (tmp_path / "imported").exists()
    assert len(files(tmp_path / "run")) == 1


def test_the_core_is_known_by_its_api_alone():
    for path in Path(plugin.__file__).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            if re.match(r"\s*(from|import)\s+rlinf_core", line):
                assert line.startswith("from rlinf_core.api import"), f"{path.name}: {line}"


def test_every_option_has_help():
    assert [n for n, f in TensorBoardConfig.model_fields.items() if not f.description] == []


@pytest.mark.parametrize("folder", ["", "..", "a/../../b", "/tmp/a"])
def test_a_folder_that_is_not_below_the_run_is_refused(folder):
    with pytest.raises(ValueError, match="not below the run's folder"):
        TensorBoardConfig(folder=folder)


# --- scalars --------------------------------------------------------------------------------------


def test_metrics_are_there_when_the_step_is_over(start, read, tmp_path):
    logger = start(folder="logs/tb")
    logger.log(1, {"train/loss": 0.5, "episode/return": -2.0})
    logger.log(2, {"train/loss": 0.25, "episode/return": 3})
    events = read("logs/tb")  # while the file is open
    assert points(events, "train/loss") == [(1, 0.5), (2, 0.25)]
    assert points(events, "episode/return") == [(1, -2.0), (2, 3.0)]
    assert [p.name for p in tmp_path.iterdir()] == ["logs"]


def test_case_l03_what_has_no_value_is_left_out(start, read):
    logger = start()
    logger.log(1, {"a": math.nan, "b": None, "c": 1.0, "d": math.inf, "e": np.float32(2)})
    logger.log(2, {"a": 2.0, "b": math.nan})
    logger.log(3, {"a": math.nan})
    events = read()
    assert events.Tags()["scalars"] == ["c", "d", "e", "a"]
    assert points(events, "a") == [(2, 2.0)]
    assert points(events, "d") == [(1, math.inf)]


def test_messages_leave_no_trace(start, read):
    start().message("hello")
    assert read().Tags()["scalars"] == []


# --- resuming -------------------------------------------------------------------------------------


def test_case_l02_a_resume_at_an_earlier_step_draws_one_line(start, read, tmp_path):
    """Killed at step 5 while writing, resumed twice within a second, the last time at step 3."""
    first = start()
    for step in range(1, 6):
        first.log(step, {"a": float(step), "evaluation/b": float(step)})
    (path,) = files(tmp_path)
    before = path.read_bytes()[:-5]
    path.write_bytes(before)  # the last record is torn
    second = start(first_step=4)
    second.log(5, {"a": 50.0})
    third = start(first_step=3)
    third.log(4, {"a": 40.0, "evaluation/b": 400.0})
    third.log(5, {"a": 500.0})
    third.log(6, {"a": 600.0})
    assert points(read(), "a") == [(1, 1), (2, 2), (3, 3), (4, 40), (5, 500), (6, 600)]
    assert points(read(), "evaluation/b") == [(1, 1), (2, 2), (3, 3), (4, 400)]
    assert len(files(tmp_path)) == 3
    assert path.read_bytes() == before


def test_case_l02_a_file_sorts_behind_earlier_ones_whatever_the_clock_says(start, tmp_path):
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    ahead = folder / "events.out.tfevents.9999999990.host.1"
    ahead.write_bytes(b"")
    start()
    start()
    names = [path.name for path in files(tmp_path)]
    assert names[0] == ahead.name
    assert [name.split(".")[3] for name in names] == ["9999999990", "9999999991", "9999999992"]


def test_a_resume_from_the_beginning_drops_everything(start, read):
    start().log(1, {"a": 1.0, "b": 1.0})
    start(first_step=0).log(1, {"a": 2.0})
    assert points(read(), "a") == [(1, 2.0)]
    assert points(read(), "b") == []


# --- hyperparameters ------------------------------------------------------------------------------


def test_hyperparameters_have_the_names_of_the_command_line(start, read):
    start()
    events = read()
    text = events.Tensors("run/config")[0].tensor_proto.string_val[0].decode()
    assert '"gamma": 0.9' in text
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    session = metadata.parse_session_start_info_plugin_data(content)
    found = {name: value.WhichOneof("kind") for name, value in session.hparams.items()}
    assert found == {
        "name": "string_value",
        "seed": "number_value",
        "algorithm.name": "string_value",
        "algorithm.gamma": "number_value",
        "model.hidden": "string_value",
        "evaluation.video": "bool_value",
    }
    assert session.hparams["model.hidden"].string_value == "[8, 8]"
    assert session.group_name == "reach"


def test_hyperparameters_are_written_once(start, read):
    start()
    start(first_step=4)
    steps = [event.step for event in read().Tensors(metadata.SESSION_START_INFO_TAG)]
    assert steps == [0]


# --- artifacts ------------------------------------------------------------------------------------


def test_pictures_stay_as_they_are(start, read, tmp_path):
    path = tmp_path / "curve.png"
    imageio.imwrite(path, np.zeros((6, 9, 3), np.uint8))
    start().artifact(4, "curve", path)
    (image,) = read().Images("curve")
    assert (image.step, image.height, image.width) == (4, 6, 9)
    assert image.encoded_image_string == path.read_bytes()


def test_videos_become_animations(start, read, tmp_path):
    path = tmp_path / "video.mp4"
    frames = [np.full((32, 64, 3), 8 * i, np.uint8) for i in range(20)]
    imageio.mimwrite(path, frames, fps=20, macro_block_size=2)
    start(video_frames=5, video_width=16).artifact(2, "video", path)
    (image,) = read().Images("video")
    assert (image.step, image.height, image.width) == (2, 8, 16)
    (tmp_path / "shown.gif").write_bytes(image.encoded_image_string)
    with imageio.get_reader(tmp_path / "shown.gif") as shown:
        pictures = list(shown)
        seconds = sum(shown.get_meta_data(i)["duration"] for i in range(len(pictures))) / 1000
    assert len(pictures) == 5
    assert pictures[0].shape[:2] == (8, 16)
    assert pictures[0].mean() < 8 < 140 < pictures[-1].mean()
    assert seconds == pytest.approx(1.0, abs=0.1)  # as long as the video


@pytest.mark.parametrize(("name", "told"), [("a.mp4", "cannot be shown"), ("a.npz", "a.npz`")])
def test_what_cannot_be_shown_is_named_and_stops_nothing(name, told, start, read, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"nothing of the kind")
    start().artifact(1, "made", path)
    text = read().Tensors("made")[0].tensor_proto.string_val[0].decode()
    assert told in text


def test_a_file_that_is_not_there_stops_nothing(start, read, tmp_path):
    start().artifact(1, "made", tmp_path / "gone.png")
    text = read().Tensors("made")[0].tensor_proto.string_val[0].decode()
    assert "gone.png` cannot be shown" in text
