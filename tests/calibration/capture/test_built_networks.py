"""Our networks written in PyTorch and captured: saved bytes, peak and time are those of the built ones.

That captures are right, `test_capture.py` and `test_real_runs.py` show beside real runs.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from calibration.capture.capture import capture
from calibration.capture.program import CaptureDevice, Program
from tests.calibration.capture.built_operators import Operands, forward, parameter_shapes
from tests.machines import shipped_profile
from tests.toy import TOY_LIMITS, placement_of, toy_costs, toy_setting
from vdnnsim.analysis.metrics import RunMetrics, measure
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.convolutional import BatchNormalization
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer, LayerKind
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.sequences import Embedding
from vdnnsim.dnn.workload import Mode, Optimizer, Workload, under_autocast
from vdnnsim.hardware.profile import Profile, shipped_profiles
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.pytorch import PyTorch, pytorch_loop
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import ElementType, Precision

ROOT = Path(__file__).parents[3]
PEAK_TOLERANCE = 0.01
"""Running moments, and gradients of the branches of a concatenation, which are views of its own."""
OTHER_BYTES = 400
"""No storages of ours are the weight of the loss, 4 B, and the random state of each attention, 16 or 24 B."""
PADDING = 2e-4
"""Of saved bytes, where an attention pads its sums of exponentials."""
MEMBERS = ("resnet18", "resnet34", "resnet101", "resnet152", "resnet20", "resnet110", "wrn_8_1", "wrn_28_10")
BATCH_FIRST = ("lstm_rnn", "lstm_rnn_800")
"""Of an LSTM that returns its batch first, the next product copies the result, and saves that."""
IN_SUITE = ("caffenet", "gpt2_small", "mobilenet_v2", "tiny_residual", "unet")


def networks(*left_out: str) -> list[object]:
    """Return names as parameters, most of them for `pytest -m thorough`: a capture takes seconds."""
    return [
        each if each in IN_SUITE else pytest.param(each, marks=pytest.mark.thorough)
        for each in (*NETWORKS, *MEMBERS)
        if each not in (*BATCH_FIRST, *left_out)
    ]


TIMED = ("resnet18",)
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

    def __init__(self, layer: Layer, *, in_time: bool) -> None:
        super().__init__()
        self._layer, self._in_time = layer, in_time
        x = layer.in_shapes[0]
        shapes = parameter_shapes(layer.operator, x, in_time=in_time) if layer.parameters else ()
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(each)) for each in shapes)
        moments = 2 if isinstance(layer.operator, BatchNormalization) else 0
        for number in range(moments):
            self.register_buffer(f"moment{number}", torch.empty(x.channels))

    def forward(self, labels: torch.Tensor, weights: nn.ParameterList, *inputs: torch.Tensor) -> torch.Tensor:
        steps = self._layer.in_shapes[0].steps
        operands = Operands(inputs, steps, tuple(weights), tuple(self.buffers()), labels, self._in_time)
        return forward(self._layer.operator, operands)


class Network(nn.Module):
    """Our layers in order, with activations dropped after their last reader; the last is the loss."""

    def __init__(self, graph: LayerGraph) -> None:
        super().__init__()
        self._graph = graph
        in_time = any(getattr(layer.operator, "steps", 1) > 1 for layer in graph.layers)
        self.layers = nn.ModuleList(LayerModule(layer, in_time=in_time) for layer in graph.layers)

    def forward(self, batch: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        maps = {0: batch}
        del batch
        for layer, module in zip(self._graph.layers, self.layers, strict=True):
            inputs = [maps[index] for index in layer.inputs]
            for index in set(layer.inputs):
                if layer.in_place or self._graph.maps[index].consumers[-1] == layer.index:
                    del maps[index]
            owner = layer.index if layer.weights_of is None else layer.weights_of
            maps[layer.output] = module(labels, self.layers[owner].weights, *inputs)
            del inputs
        return maps[layer.output]


def batch_of(graph: LayerGraph, batch_size: int) -> torch.Tensor:
    """Tokens, steps, videos whose frames stand beside each other or are an image each, or images."""
    x = graph.maps[0].shape
    if any(isinstance(graph.layers[reader].operator, Embedding) for reader in graph.maps[0].consumers):
        return torch.zeros(batch_size, x.steps, dtype=torch.int64)
    if x.steps > 1 and x.height * x.width == 1:
        return torch.empty(batch_size, x.steps, x.channels)
    if any(getattr(layer.operator, "steps", 1) > 1 for layer in graph.layers):
        return torch.empty(batch_size, x.channels, x.steps, x.height, x.width)
    return torch.empty(batch_size * x.steps, x.channels, x.height, x.width)


def captured(workload: Workload, graph: LayerGraph, precision: Precision = Precision.FLOAT32) -> CapturedWorkload:
    rows = graph.layers[-1].out_shape

    def inputs() -> tuple[tuple[torch.Tensor, torch.Tensor], dict[str, object]]:
        labels = torch.zeros(workload.batch_size * rows.elements // rows.channels, dtype=torch.int64)
        return (batch_of(graph, workload.batch_size), labels), {}

    program = Program(
        name=graph.name,
        make_model=partial(Network, graph),
        make_inputs=inputs,
        loss=lambda output: output,
        optimizer=workload.optimizer.value,
        mode=Mode.TRAINING,
        precision=precision,
        batch_size=workload.batch_size,
    )
    # Built networks have no workspaces of libraries.
    return CapturedWorkload.of(msgspec.structs.replace(capture(program, CaptureDevice()), device="cpu"))


def replayed(workload: Workload, server: Server) -> RunMetrics:
    simulator = Simulator.of(workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    plan = PyTorch().plan(simulator.setting())
    (trace,) = simulator.replay([plan], [simulator.place_unlimited(plan)]).gpus
    return measure(trace, workload.batch_size)


def peak_bytes(workload: Workload) -> int:
    plan = PyTorch().plan(toy_setting(workload, toy_costs(workload, {})))
    return placement_of(plan, replace(TOY_LIMITS, device_bytes=2**50)).pool_bytes


@pytest.mark.parametrize("network", networks())
def test_saved_bytes_and_peak_are_those_of_pytorch(network: str) -> None:
    graph = build_network(network)
    workload = Workload(graph, 8, optimizer=Optimizer.SGD)
    found = captured(workload, graph)
    saved_bytes = workload.saved_by(SavingRule.AUTOGRAD).step.saved_bytes
    assert found.captured.parameters == graph.parameters
    padding = PADDING if any(each.kind is LayerKind.ATTENTION for each in graph.layers) else 0
    assert found.step.saved_bytes == pytest.approx(saved_bytes, rel=padding, abs=OTHER_BYTES)
    assert found.captured.peak_live_bytes == pytest.approx(peak_bytes(workload), rel=PEAK_TOLERANCE)


@pytest.mark.parametrize("network", networks("caffenet", "lstm_cnn"))
def test_saved_bytes_are_those_of_autocast(network: str) -> None:
    """Narrow maps, the narrow copies of weights, and the logarithms of a loss in both types.

    Under autocast an LRN, as CaffeNet has, saves a little less than ours.
    """
    graph = build_network(network)
    ours = Workload(under_autocast(graph, ElementType.BFLOAT16), 8, optimizer=Optimizer.SGD)
    saved_bytes = ours.saved_by(SavingRule.AUTOGRAD).step.saved_bytes
    found = captured(ours, graph, Precision.AMP_BFLOAT16)
    assert found.step.saved_bytes == pytest.approx(saved_bytes, abs=OTHER_BYTES)


def hold(network: str, profiles: Iterable[Profile]) -> None:
    """Compare the time of an iteration (5 %)."""
    graph = build_network(network)
    workload = Workload(graph, 16, optimizer=Optimizer.SGD)
    built, found = pytorch_loop(workload, set_to_none=True), captured(workload, graph)
    for profile in profiles:
        ours, theirs = replayed(built, profile.server), replayed(found, profile.server)
        assert theirs.allocated_bytes == pytest.approx(ours.allocated_bytes, rel=PEAK_TOLERANCE), profile.file
        assert theirs.iteration_s == pytest.approx(ours.iteration_s, rel=0.05), profile.file


@pytest.mark.parametrize("network", [*TIMED, *(pytest.param(each, marks=pytest.mark.thorough) for each in OTHERS)])
def test_captured_and_built_take_as_long(network: str) -> None:
    hold(network, [shipped_profile(each) for each in KINDS])


@pytest.mark.thorough
def test_captured_and_built_take_as_long_on_every_machine() -> None:
    hold("resnet18", shipped_profiles())
