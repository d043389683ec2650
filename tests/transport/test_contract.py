"""The contract of weight transports, on those of the core and on both of its runtimes."""

from __future__ import annotations

from rlinf_core.builtin.config import BucketedConfig, ChangedConfig, WeightsConfig
from rlinf_core.runtime.processes import ProcessRuntime
from rlinf_core.testing import WeightTransportContract


class TestFull(WeightTransportContract):
    target = "rlinf_core.builtin.weights:FullTransport"
    config = WeightsConfig()


class TestBucketed(WeightTransportContract):
    target = "rlinf_core.builtin.weights:BucketedTransport"
    config = BucketedConfig(bucket_mib=1)


class TestChanged(WeightTransportContract):
    target = "rlinf_core.builtin.weights:ChangedTransport"
    config = ChangedConfig(bucket_mib=1)


class TestFullAcrossProcesses(TestFull):
    def make_runtime(self):
        return ProcessRuntime()


class TestBucketedAcrossProcesses(TestBucketed):
    def make_runtime(self):
        return ProcessRuntime()


class TestChangedAcrossProcesses(TestChanged):
    def make_runtime(self):
        return ProcessRuntime()


class TestBucketedByGloo(TestBucketedAcrossProcesses):
    config = BucketedConfig(bucket_mib=1, way="gloo")
