"""FLOPs of a model in a step of several GPUs."""

import msgspec

from tests.captured_ranks import counted, sharded
from vdnnsim.analysis.utilization import flop_by_module


def test_flop_of_a_step() -> None:
    """Two products of 10 and 20 FLOPs in forward, backward twice as much, of two samples: 15 and 30 for each.

    Blocks are counted together, and those of two stages, which call their parts `model`, are of twice the samples.
    """
    step = counted(sharded(), {"fc1": 10, "fc2": 20})
    assert flop_by_module((step,), 2) == {"fc1": 15, "fc2": 30}
    parts = {"fc1": "model.layers.0", "fc2": "model.layers.1.up"}
    modules = tuple(msgspec.structs.replace(each, path=parts.get(each.path, each.path)) for each in step.modules)
    stage = msgspec.structs.replace(step, modules=modules, pipeline=2)
    assert flop_by_module((stage, stage), 2) == {"layers.*": 15, "layers.*.up": 30}
