from rlinf_plugin_sketch.config import SketchConfig
from rlinf_plugin_sketch.reward import SketchReward

from rlinf_core.api import Batch


def test_an_answer_is_right_where_it_ends_with_the_solution():
    rows = Batch({"answer": ["so it is 4\n", "4, or 5"], "solution": ["4", "4"]})
    scores = SketchReward(SketchConfig(wrong=-1.0))(rows)
    assert scores.tolist() == [1.0, -1.0]
