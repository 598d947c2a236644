"""A card that is not worse in any rate is never slower, over all pairs of shipped profiles."""

from contextlib import suppress
from functools import cache
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vdnnsim import capture
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.efficiency_parameters import OperatorKind
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.cost.model import EFFICIENCY, ServerCosts
from vdnnsim.cost.tiled_product import TiledProduct
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.profile import shipped_profiles
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType, Precision

ROUNDING = 1 + 1e-9
UNLIMITED = 1e30
"""FLOPs and bytes a second that a card without a power limit may compute and move."""


def rates(gpu: EfficientGpu) -> dict[str, float]:
    """Every rate on which times depend: where all are lower by a factor, every kernel is slower by no more than that.

    Tiles are loaded and started at the rate of a multiprocessor, over their parameters. Watts below the limit are so
    many FLOPs at the full clock, or bytes, a second.
    """
    parameters = {key: getattr(gpu.parameters, key) for key in gpu.parameters.__slots__}
    found = {"launch": 1 / parameters["launch_overhead_s"]}
    for key, value in parameters.items():
        if key.endswith("dram_fraction"):
            found[key] = value * gpu.dram_bytes_per_s
        elif key.startswith("depthwise"):
            found[key] = value * gpu.flop_per_s[ElementType.FLOAT32]
    # A channel of a batch normalization is one multiprocessor's.
    found["normalization of one"] = found["normalization_dram_fraction"] / gpu.multiprocessors
    for element_type, peak in gpu.flop_per_s.items():
        unit = "tensor" if gpu.has_tensor_cores(element_type) else "cuda"
        load, start = parameters[f"{unit}_load_flop"], parameters[f"{unit}_start_depth"]
        for of in ("", "forward_", "data_", "weights_", *(["winograd_"] if unit == "cuda" else [])):
            rate = peak * parameters[f"{unit}_{of}flop_fraction"]
            for what, units in ("card", 1), ("multiprocessor", gpu.multiprocessors):
                places = {"": 1.0, " load": load, " start": start, " load and start": load * start}
                found |= {
                    f"{unit} {of}{element_type.value} {what}{key}": rate / units / by for key, by in places.items()
                }
        for of in ("attention", "attention_gradient"):
            rate = peak * parameters[f"{unit}_flop_fraction"] * parameters[f"{of}_flop_fraction"]
            found[f"{of} {unit} {element_type.value}"] = rate
        found[f"limit {element_type.value}"] = found["limit dram"] = UNLIMITED
        if gpu.power is not None:
            watts, flop_joules = gpu.power.limit_watts - gpu.power.idle_watts, gpu.power.joules_per_flop
            found["limit dram"] = watts / gpu.power.joules_per_dram_byte
            if gpu.has_tensor_cores(element_type):
                found[f"limit {element_type.value}"] = watts / flop_joules * peak / max(gpu.flop_per_s.values())
    return found


@cache
def machines() -> dict[str, Server]:
    """Cards; servers of several have theirs."""
    profiles = (each.server for each in shipped_profiles())
    return {each.name: each for each in profiles if each.cost_model_kind == EFFICIENCY and each.topology is None}


@cache
def gpus() -> dict[str, EfficientGpu]:
    return {name: efficient_gpu(server) for name, server in machines().items()}


@cache
def slower_by() -> dict[tuple[str, str], float]:
    """By how much a card may be slower than another: the worst ratio of their rates.

    Without pairs of which the first lacks a rate, or has fewer multiprocessors, over which channels are dealt out.
    """
    known = {name: rates(gpu) for name, gpu in gpus().items()}
    return {
        (one, other): max(value / known[one][key] for key, value in known[other].items())
        for one, other in permutations(known, 2)
        if known[one].keys() >= known[other].keys() and gpus()[one].multiprocessors >= gpus()[other].multiprocessors
    }


def test_pairs_include_all_cards_and_sisters_that_are_never_slower() -> None:
    """To the rounding of datasheets: in float32 one multiprocessor of an H200 has 0.1 % more than one of a B200."""
    assert {name for pair in slower_by() for name in pair} == {*gpus()}
    never = {pair for pair, factor in slower_by().items() if factor < 1.002}
    assert {("b200", "h200"), ("h200", "h100_sxm"), ("h100_sxm", "h100_pcie"), ("rtx_a6000", "a40")} <= never


sizes = st.integers(1, 5000)
channels = st.integers(1, 512)


@given(
    element_type=st.sampled_from([ElementType.FLOAT32, ElementType.TF32, ElementType.FLOAT16, ElementType.BFLOAT16]),
    product=st.builds(TiledProduct, sizes, sizes, sizes, count=st.integers(1, 64), splits_depth=st.booleans()),
    shape=st.builds(
        ConvolutionShape,
        n=st.integers(1, 64),
        c=channels,
        k=channels,
        input_size=st.tuples(st.integers(7, 112), st.integers(7, 112)),
        kernel=st.sampled_from([(1, 1), (3, 3), (7, 7)]),
        stride=st.sampled_from([(1, 1), (2, 2)]),
    ),
    groups=st.sampled_from([1, 32]),
    phase=st.sampled_from([Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS]),
    kind=st.sampled_from(OperatorKind),
    layout=st.booleans(),
)
def test_a_card_is_slower_by_no_more_than_its_worst_rate(
    element_type: ElementType,
    product: TiledProduct,
    shape: ConvolutionShape,
    groups: int,
    phase: Phase,
    kind: OperatorKind,
    layout: bool,  # noqa: FBT001 - drawn
) -> None:
    """A product, a convolution, a kernel that streams as many bytes as the product has elements, and products unnamed.

    A card that is not worse in any rate is never slower. Before Ampere, groups go by another algorithm.
    """
    normalized = shape.c if kind is OperatorKind.NORMALIZATION else 0
    seconds = {
        name: (
            gpu.product_s(element_type, product),
            gpu.convolution_s(element_type, shape, phase, groups=groups, channels_last=layout),
            gpu.stream_s(kind, product.rows * product.columns, normalized, channels_last=layout),
            gpu.work_s(element_type, product.rows * product.columns, int(product.depth), is_gradient=layout),
        )
        for name, gpu in gpus().items()
        if element_type in gpu.flop_per_s
    }
    for (one, other), factor in slower_by().items():
        is_ampere, was_ampere = (ElementType.BFLOAT16 in gpus()[each].flop_per_s for each in (one, other))
        if groups > 1 and is_ampere is not was_ampere:
            continue
        for first, second in zip(seconds.get(one, ()), seconds.get(other, ()), strict=False):
            assert first <= second * max(factor, 1.0) * ROUNDING, (one, other)


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.TF32, Precision.AMP_BFLOAT16])
def test_a_b200_is_faster_than_an_h200(precision: Precision) -> None:
    """In float32 as well, where convolutions take TF32 by default: without a table of kernels B200 was without it."""
    asked = Workload.in_precision(build_network("alexnet"), 32, precision)
    seconds = [
        sum(options[0].seconds for options in ServerCosts(machines()[name]).table(asked).kernels.values())
        for name in ("b200", "h200", "h100_sxm")
    ]
    assert seconds == sorted(seconds)


class Hybrid(nn.Module):
    """A vision transformer behind convolutions, a grouped one among them; 1003 classes of each token, an odd row."""

    def __init__(self) -> None:
        super().__init__()
        grouped, normalized = nn.Conv2d(64, 64, 3, groups=2), nn.BatchNorm2d(64)
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2), normalized, nn.ReLU(), grouped, nn.MaxPool2d(2))
        self.patches, self.head = nn.Conv2d(64, 128, 2, 2), nn.Linear(128, 1003)
        self.block = nn.TransformerEncoderLayer(128, 4, dropout=0, batch_first=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.block(self.patches(self.stem(images)).flatten(2).mT))
        return logits


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler, when it is imported
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_no_kernel_of_a_training_step_is_slower_by_more_than_the_worst_rate(*, compiled: bool) -> None:
    """Of a step that was captured for one card, in a precision that all with tensor cores have."""
    images = torch.zeros(16, 3, 112, 112)
    step = CapturedWorkload.of(capture(Hybrid, images, precision="amp_float16", optimizer="sgd", compile=compiled))
    seconds = {}
    for name, server in machines().items():
        with suppress(ProfileError):
            kernels = ServerCosts(server).table(step).kernels
            seconds[name] = {where: options[0].seconds for where, options in kernels.items()}
    compared = [pair for pair in slower_by() if seconds.keys() >= {*pair}]
    assert len(compared) > 100
    for one, other in compared:
        for where, taken_s in seconds[one].items():
            assert taken_s <= seconds[other][where] * max(slower_by()[one, other], 1.0) * ROUNDING, (one, other, where)
