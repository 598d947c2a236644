"""Policies on models that were captured: the chain and the residual network of `tests/captured_steps.py`."""

import msgspec
import pytest
import torch
from torch import nn

import vdnnsim
from tests.captured_steps import chain, residual, simulator
from tests.toy import toy_graph, toy_workload
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, Module
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.operations import Compute, Offload
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import make_plan
from vdnnsim.policies.iterations.segments import blocks_of, is_sequence, passing
from vdnnsim.policies.registry import known_policies, resolve_policy

ONLY_BUILT = ("caffe", "geeps", "layrub_hybrid", "layrub_inter", "layrub_intra", "superneurons")


def plan(step: CapturedStep, policy: str) -> TrainingPlan:
    machine = simulator(step, MemoryModel.IDEAL)
    (ready,) = machine.ready([make_plan(resolve_policy(policy, known_policies()), machine.setting())], policy)
    return ready


def as_list(step: CapturedStep) -> CapturedStep:
    """Say of `layer1` that it is a sequence of modules, and of `layer1.0` that it is one with parts."""
    kinds = {"layer1": "torch.nn.modules.container.Sequential", "layer1.0": "torchvision.models.resnet.BasicBlock"}
    modules = [msgspec.structs.replace(each, kind=kinds.get(each.path, each.kind)) for each in step.modules]
    return msgspec.structs.replace(step, modules=(*modules, Module("layer1", kinds["layer1"])))


@pytest.mark.parametrize("name", ONLY_BUILT)
def test_policies_of_built_networks_refuse_a_captured_model(name: str) -> None:
    policy = resolve_policy(name, known_policies())
    with pytest.raises(PolicyError, match=f"^{name}.*{policy.only_built}, which chain has not, for it was captured"):
        make_plan(policy, simulator(chain(), MemoryModel.IDEAL).setting())


@pytest.mark.parametrize("step", [chain(), residual()], ids=["chain", "residual"])
@pytest.mark.parametrize("name", sorted(set(known_policies()) - set(ONLY_BUILT)))
def test_all_others_run_every_operation(name: str, step: CapturedStep) -> None:
    """Each once, recomputations aside; `ready` checks the plan."""
    kernels = [each for each in plan(step, name).operations if isinstance(each, Compute)]
    assert sum(not each.repeat for each in kernels) == len(step.operations)


def test_save_on_cpu_copies_what_operations_save() -> None:
    """Of the chain conv the images and bn conv's map and its moments, relu its map; pool that and indices, fc pool's.

    The loss the logarithms, twice, once for each of its operations that saves them: one layer copies them once.
    """
    offloads = [each.buffer for each in plan(chain(), "save_on_cpu").operations if isinstance(each, Offload)]
    assert offloads == [3, 5, 7, 6, 6, 9, 8, 11]


class Apart(nn.Module):
    """Two layers, of which the second takes the result of the first out of its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 7)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.second(self.first(batch).detach()))


def test_save_on_cpu_copies_no_batch_that_backward_does_not_unpack() -> None:
    """The loop holds it all the same. The second layer saves the result of the first, and backward unpacks that."""
    made = plan(vdnnsim.capture(Apart(), torch.ones(4, 3), loss=torch.sum), "save_on_cpu")
    offloads = [made.buffers[each.buffer].name for each in made.operations if isinstance(each, Offload)]
    assert offloads == ["addmm first"]


def test_one_list_of_alike_blocks_is_a_sequence() -> None:
    """Not two lists, as of encoder and decoder, nor a model without blocks, if it is no Sequential itself."""
    step, container = as_list(residual()), "torch.nn.modules.container"
    second = Module("up", f"{container}.ModuleList"), Module("up.0", "unet.Up"), Module("up.0.conv", "torch.nn.Conv2d")
    plain = [
        msgspec.structs.replace(each, kind=f"{container}.Sequential" * (not each.path)) for each in chain().modules
    ]
    found = [
        is_sequence(CapturedWorkload.of(each))
        for each in (
            step,
            msgspec.structs.replace(step, modules=(*step.modules, *second)),
            residual(),
            msgspec.structs.replace(chain(), modules=tuple(plain)),
        )
    ]
    assert found == [True, False, False, True]


def test_a_skip_connection_passes_beside_what_the_next_layer_reads() -> None:
    """Behind the first layer its map alone passes; behind the second two do, for the sum reads the first as well."""
    workload = toy_workload(toy_graph("first conv; second conv; sum add second first"))
    assert [passing(workload, behind) for behind in (1, 2)] == [1, 2]


def test_what_is_computed_from_no_weights_does_not_pass() -> None:
    """Behind conv1 its output passes and the stem's, which the addition reads: two, though one gradient is for both.

    Of a stem without weights, as a mask has, it is the output of conv1 alone.
    """
    step = residual()
    storages = [
        msgspec.structs.replace(each, kind=BufferKind.STATISTICS) if each.name == "stem.weight" else each
        for each in step.storages
    ]
    without = msgspec.structs.replace(step, storages=tuple(storages))
    assert [passing(CapturedWorkload.of(each), 2) for each in (step, without)] == [2, 1]


def test_blocks_are_the_members_of_a_list_of_modules() -> None:
    """The stem, the block of conv1, relu, conv2 and the addition with its relu, and the mean behind it."""
    assert blocks_of(CapturedWorkload.of(residual())) == []
    workload = CapturedWorkload.of(as_list(residual()))
    names = [[workload.graph.layers[index].name for index in block] for block in blocks_of(workload)]
    assert [each[0] for each in names] == ["stem", "layer1.0.conv1", "mean"]
    assert sum(map(len, names)) == len(workload.graph.layers)
    # Three parts as three segments: the last, the mean, is not recomputed. Of the block the sum is kept, which the
    # mean reads; its backward reads the output of relu besides.
    step = as_list(residual())
    layers = CapturedWorkload.of(step).graph.layers
    kernels = [each for each in plan(step, "checkpoint(p, segments=3)").operations if isinstance(each, Compute)]
    again = [layers[each.layer].name for each in kernels if each.repeat]
    assert again == ["layer1.0.conv1", "layer1.0.relu"]
    assert {each.phase for each in kernels if each.repeat} == {Phase.FORWARD}


def test_an_encoder_in_a_sequence_is_no_block_but_its_layers_are() -> None:
    """Of `Sequential(stem, encoder, mean)`: conv1 in its first layer, relu, conv2 and addition in the second."""
    container = "torch.nn.modules.container"
    kinds = {
        "": f"{container}.Sequential",
        "1": "transformer.Encoder",
        "1.layers": f"{container}.ModuleList",
        "1.layers.0": "transformer.Layer",
        "1.layers.1": "transformer.Layer",
    }
    paths = {"stem": "0", "layer1.0": "1.layers.1", "layer1.0.conv1": "1.layers.0.conv1"}
    paths |= {f"layer1.0.{each}": f"1.layers.1.{each}" for each in ("relu", "conv2")}
    step = residual()
    named = [Module(paths.get(each.path, each.path), each.kind) for each in step.modules]
    modules = [Module(each.path, kinds.get(each.path, each.kind)) for each in named]
    modules += [Module(path, kinds[path]) for path in kinds if path not in {each.path for each in named}]
    workload = CapturedWorkload.of(msgspec.structs.replace(step, modules=tuple(modules)))
    firsts = [workload.graph.layers[block[0]].name for block in blocks_of(workload)]
    assert firsts == ["0", "1.layers.0.conv1", "1.layers.1.relu", "mean"]
