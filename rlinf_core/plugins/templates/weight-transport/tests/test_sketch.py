from rlinf_core.testing import WeightTransportContract


class TestSketch(WeightTransportContract):
    target = "rlinf_plugin_sketch.transport:SketchTransport"
    shards = False
