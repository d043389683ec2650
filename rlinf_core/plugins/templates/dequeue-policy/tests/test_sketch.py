from rlinf_plugin_sketch.policy import SketchPolicy


def test_the_heaviest_comes_first_and_the_oldest_among_equals():
    assert SketchPolicy().choose([1.0, 3.0, 3.0, 2.0], consumer=0, served=[0.0]) == 1
