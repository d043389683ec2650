import pytest
from rlinf_plugin_sketch.config import SketchConfig
from rlinf_plugin_sketch.dataset import SketchDataset


def test_every_sum_is_there_once_and_right():
    samples = list(SketchDataset(SketchConfig(largest=3)))
    assert len({sample["prompt"] for sample in samples}) == len(samples) == 16
    assert {"prompt": "2 + 3 =", "solution": "5"} in samples


def test_there_is_no_sample_beyond_the_last():
    with pytest.raises(IndexError, match="there are 4 samples, and no sample 4"):
        SketchDataset(SketchConfig(largest=1))[4]
