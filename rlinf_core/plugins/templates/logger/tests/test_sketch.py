from rlinf_core.api import RunInfo
from rlinf_plugin_sketch.config import SketchConfig
from rlinf_plugin_sketch.logger import SketchLogger


def make(folder, first_step=0):
    info = RunInfo("test", folder, config={}, first_step=first_step, total_steps=3)
    return SketchLogger(SketchConfig(columns=("env_steps",)), info)


def test_a_resumed_run_drops_the_rows_that_it_repeats(tmp_path):
    logger = make(tmp_path)
    for step in (1, 2, 3):
        logger.log(step, {"env_steps": 100.0 * step, "train/loss": 0.5})
    logger.close("interrupted")

    logger = make(tmp_path, first_step=2)
    logger.log(3, {"env_steps": 301.0})
    logger.close("done")
    rows = (tmp_path / "metrics.csv").read_text().split()
    assert rows == ["step,env_steps", "1,100.0", "2,200.0", "3,301.0"]
