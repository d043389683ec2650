"""For plugin authors' tests: contracts to subclass, and a small world to test against.

Nothing in the core imports this package. Needs pytest.

A simulator's test file is as short as this::

    from rlinf_core.testing import SimulatorContract

    class TestMySimulator(SimulatorContract):
        def make(self, slots):
            return make_simulator(MyConfig(), slots)

Workers of ``RuntimeContract`` and ``WeightTransportContract`` are imported by name wherever the
runtime runs them, so this package must be installed there too.
"""

from rlinf_core.testing.golden import Golden, golden_weight
from rlinf_core.testing.installed import install_plugin
from rlinf_core.testing.policy_contract import PolicyContract
from rlinf_core.testing.runtime_contract import RuntimeContract
from rlinf_core.testing.simulator_contract import SimulatorContract
from rlinf_core.testing.toy import ToyConfig, ToyPolicy, ToySimulator
from rlinf_core.testing.weight_contract import WeightTransportContract

__all__ = [
    "Golden",
    "PolicyContract",
    "RuntimeContract",
    "SimulatorContract",
    "ToyConfig",
    "ToyPolicy",
    "ToySimulator",
    "WeightTransportContract",
    "golden_weight",
    "install_plugin",
]
