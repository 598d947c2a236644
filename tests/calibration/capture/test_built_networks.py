"""Our networks written in PyTorch and captured: saved bytes, peak and time are those of the built ones."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from calibration.capture.capture import CaptureDevice, capture
from calibration.capture.program import Program
from tests.pytorch_twins.operators import Operands, forward, parameter_shapes
from vdnnsim.analysis.metrics import RunMetrics, measure
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.convolutional import BatchNormalization
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.hardware.profile import Profile, find_profile, load_profile, shipped_profiles
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.pytorch import PyTorch, pytorch_loop
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import Precision

ROOT = Path(__file__).parents[2]
BATCH_SIZE = 16
NETWORKS = ("resnet18",)
"""On a machine of each kind: fitted, and a table of kernels."""
OTHERS = (
    "alexnet_torchvision",
    "unet",
    "vgg16_torchvision",
    "vgg_a_8conv",
    "vgg_d_13conv",
    "resnet34",
    "resnet50",
    "inception_v3",
    "overfeat",
)
KINDS = ("titan_x_maxwell", "a100_40gb")


class LayerModule(nn.Module):
    """One of our layers, with its weights and running moments."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self._layer = layer
        x = layer.in_shapes[0]
        shapes = parameter_shapes(layer.operator, x, in_time=False) if layer.parameters else ()
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(each)) for each in shapes)
        moments = 2 if isinstance(layer.operator, BatchNormalization) else 0
        for number in range(moments):
            self.register_buffer(f"moment{number}", torch.empty(x.channels))

    def forward(self, labels: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        steps = self._layer.in_shapes[0].steps
        operands = Operands(inputs, steps, tuple(self.weights), tuple(self.buffers()), labels, False)  # noqa: FBT003
        return forward(self._layer.operator, operands)


class Network(nn.Module):
    """Our layers in order, with activations dropped after their last reader; the last is the loss."""

    def __init__(self, graph: LayerGraph) -> None:
        super().__init__()
        self._graph = graph
        self.layers = nn.ModuleList(LayerModule(layer) for layer in graph.layers)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        maps = {0: batch}
        del batch
        for layer, module in zip(self._graph.layers, self.layers, strict=True):
            inputs = [maps[index] for index in layer.inputs]
            for index in set(layer.inputs):
                if layer.in_place or self._graph.maps[index].consumers[-1] == layer.index:
                    del maps[index]
            maps[layer.output] = module(labels, *inputs)
            del inputs
        return maps[layer.output]


def captured(workload: Workload) -> CapturedWorkload:
    graph = workload.graph
    x, rows = graph.maps[0].shape, graph.layers[-1].out_shape

    def inputs() -> tuple[tuple[torch.Tensor, torch.Tensor], dict[str, object]]:
        labels = torch.zeros(workload.batch_size * rows.elements // rows.channels, dtype=torch.int64)
        return (torch.empty(workload.batch_size, x.channels, x.height, x.width), labels), {}

    program = Program(
        name=graph.name,
        make_model=partial(Network, graph),
        make_inputs=inputs,
        loss=lambda output: output,
        optimizer=workload.optimizer.value,
        mode=Mode.TRAINING,
        precision=Precision.FLOAT32,
        batch_size=workload.batch_size,
    )
    # Built networks have no workspaces of libraries.
    return CapturedWorkload.of(msgspec.structs.replace(capture(program, CaptureDevice()), device="cpu"))


def replayed(workload: Workload, server: Server) -> RunMetrics:
    simulator = Simulator.of(workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    plan = PyTorch().plan(simulator.setting())
    (trace,) = simulator.replay([plan], [simulator.place_unlimited(plan)]).gpus
    return measure(trace, workload.batch_size)


def hold(network: str, profiles: Iterable[Profile]) -> None:
    """Compare saved bytes (within 100 B), peak (1 %) and time (5 %)."""
    workload = Workload(build_network(network), BATCH_SIZE, optimizer=Optimizer.SGD)
    built, found = pytorch_loop(workload, set_to_none=True), captured(workload)

    assert found.step.saved_bytes == pytest.approx(built.step.saved_bytes, abs=100)
    for profile in profiles:
        ours, theirs = replayed(workload, profile.server), replayed(found, profile.server)
        assert theirs.max_memory_bytes == pytest.approx(ours.max_memory_bytes, rel=0.01), profile.file
        assert theirs.iteration_s == pytest.approx(ours.iteration_s, rel=0.05), profile.file


@pytest.mark.parametrize("network", [*NETWORKS, *(pytest.param(each, marks=pytest.mark.thorough) for each in OTHERS)])
def test_captured_and_built_are_one(network: str) -> None:
    hold(network, [load_profile(find_profile(each, ROOT)) for each in KINDS])


@pytest.mark.thorough
def test_captured_and_built_are_one_on_every_machine() -> None:
    hold("resnet18", shipped_profiles())
