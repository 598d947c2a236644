"""The table of kernels that a recorded step makes, as a calibration would write it (`vdnnsim.cost.kernel_table`).

Convolutions and products of matrices are phases of layers that we could build, all else are operators of PyTorch, each
with its sizes. A row is what one of them took on average: kernels of a microsecond were recorded in whole microseconds,
of which a median would make 1 or 2. Nothing tells their workspaces.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, quantiles
from typing import Final

from vdnnsim.cost.captured import convolution_layer, convolution_phases, is_plane, product_layer
from vdnnsim.cost.kernel_table import TORCH_OPERATOR, KernelRow, KernelShape, torch_operator
from vdnnsim.dnn.captured_step import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.hardware.server import Origin
from vdnnsim.recordings.trace_calls import Launch
from vdnnsim.recordings.trace_operations import Operation
from vdnnsim.recordings.trace_work import OperationWork
from vdnnsim.units import ElementType

ALGORITHM: Final = "recorded"
_LEAST_SECONDS: Final = 0.5e-6
"""Of what was recorded as no time: half of the unit of old formats."""
_MOST_INPUTS: Final = 8
_DIGITS: Final = 10
_TYPES: Final = {each.value: each for each in (ElementType.FLOAT32, ElementType.FLOAT16, ElementType.BFLOAT16)}
_DATA: Final = re.compile(r"dgrad|bwd_data|backward_data|backward_input", re.IGNORECASE)
_WEIGHTS: Final = re.compile(r"wgrad|bwd_filter|bwd_weight|backward_weight|backward_filter", re.IGNORECASE)


@dataclass(slots=True)
class _Found:
    """What was recorded of one shape."""

    flop: int
    nbytes: int
    seconds: list[float] = field(default_factory=list)


def rows_of(operations: Sequence[Operation], works: Sequence[OperationWork], batch_size: int) -> tuple[KernelRow, ...]:
    """Return a row for each shape among the operations of a step."""
    found: dict[KernelShape, _Found] = {}
    for operation, work in zip(operations, works, strict=True):
        for shape, flop, nbytes, seconds in _pieces(operation, work, batch_size):
            found.setdefault(shape, _Found(flop, nbytes)).seconds.append(seconds)
    return tuple(_row(shape, each) for shape, each in found.items())


def phase_seconds(operation: Operation, work: ConvolutionWork) -> dict[Phase, float]:
    """Return what each phase took of a convolution that computes several, the gradient of its input first.

    By the operator or the kernel that names one; what stands before such a kernel prepares it, as a transposition, and
    what is left over behind the last is its own. Where one phase alone is named, what stands on the other side of it is
    the other's; where none is, each took as long as the others.
    """
    phases = convolution_phases(work)
    if len(phases) == 1:
        return {phases[0]: operation.seconds}
    named = [_phase(each) for each in operation.launches]
    if not any(named):
        return dict.fromkeys(phases, operation.seconds / len(phases))
    if Phase.BACKWARD_DATA not in named:
        named[: named.index(Phase.BACKWARD_WEIGHTS)] = [Phase.BACKWARD_DATA] * named.index(Phase.BACKWARD_WEIGHTS)
    told = [each for each in named if each is not None]
    behind = told[-1] if Phase.BACKWARD_WEIGHTS in told else Phase.BACKWARD_WEIGHTS
    seconds: defaultdict[Phase, float] = defaultdict(float)
    for at, launch in enumerate(operation.launches):
        following = (each for each in named[at:] if each is not None)
        seconds[next(following, behind)] += launch.event.seconds
    return dict(seconds)


def _phase(launch: Launch) -> Phase | None:
    """Return the phase of a convolution that a kernel or its operator names."""
    text = f"{launch.operator.event.name if launch.operator else ''} {launch.event.name}"
    return Phase.BACKWARD_WEIGHTS if _WEIGHTS.search(text) else Phase.BACKWARD_DATA if _DATA.search(text) else None


def _pieces(
    operation: Operation, work: OperationWork, batch_size: int
) -> Iterator[tuple[KernelShape, int, int, float]]:
    """Yield the shapes of which an operation is, each with its FLOPs, its bytes and what it took."""
    element_type = _TYPES.get(work.element_type, ElementType.FLOAT32)
    match work.work:
        case ConvolutionWork() as convolution if is_plane(convolution):
            workload, layer = convolution_layer(convolution, element_type)
            for phase, seconds in phase_seconds(operation, convolution).items():
                shape = KernelShape.of(workload, layer, phase)
                yield shape, workload.flop(layer, phase), workload.bytes_moved(layer, phase), seconds
        case ProductWork(batch=1) as product:
            workload, layer, phase = product_layer(product, work.role, batch_size, element_type)
            shape = KernelShape.of(workload, layer, phase)
            yield shape, workload.flop(layer, phase), workload.bytes_moved(layer, phase), operation.seconds
        case _:
            if TORCH_OPERATOR.fullmatch(name := torch_operator(operation.name)):
                shape = KernelShape(name, Phase.FORWARD, 1, element_type, _vectors(operation), "")
                yield shape, sum(work.flop.values()), work.bytes_moved, operation.seconds


def _vectors(operation: Operation) -> tuple[MapShape, ...]:
    sizes = [math.prod(each) for each in operation.dims if each and all(each)]
    if len(sizes) > _MOST_INPUTS:
        sizes = [sum(sizes)]
    return tuple(map(MapShape, sizes or [1]))


def _row(shape: KernelShape, found: _Found) -> KernelRow:
    # Differences of times of day are as exact as these, not more.
    mean, count = round(fmean(found.seconds), _DIGITS), len(found.seconds)
    quarters = quantiles(found.seconds, n=4) if count > 1 else (mean, mean, mean)
    return KernelRow(
        shape=shape,
        algorithm=ALGORITHM,
        family="",
        seconds=max(mean, _LEAST_SECONDS),
        spread=round(max(0.0, quarters[2] - quarters[0]) / max(mean, _LEAST_SECONDS), _DIGITS),
        count=count,
        workspace_bytes=0,
        flop=found.flop,
        nbytes=found.nbytes,
        origin=Origin.MEASURED,
    )
