"""The profile of the machine on which a step was recorded, and its table of kernels.

A trace has the GPU (formats since 2021), kernels, the host's issue time, and perhaps copies. Peaks are those of the
fastest kernels, by FLOPs of the direct method; they time other work, and are not a datasheet's. Figures that neither
the trace nor another profile states are assumed.

Convolutions and matrix products become phases of layers, all else operators of PyTorch with sizes. A row has the mean,
for old formats have whole microseconds, of which the median of a short kernel is 1 or 2. Workspaces are not recorded.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, quantiles
from typing import Final

from vdnnsim.cost.captured import convolution_layer, is_plane, product_layer
from vdnnsim.cost.convolution_shape import convolution_phases
from vdnnsim.cost.kernel_table import TORCH_OPERATOR, KernelRow, KernelShape, kernel_table_text, torch_operator
from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.errors import RecordingError
from vdnnsim.hardware.figures import definition, rounded_figure, state
from vdnnsim.hardware.server import Figure, Gpu, Host, Link, Origin, Server
from vdnnsim.hardware.write import kernels_beside, refuse_foreign_profile, write_profile
from vdnnsim.memory.settings import GRANULE_BYTES
from vdnnsim.recordings.operation_work import OperationWork
from vdnnsim.recordings.recorded_step import RecordedStep
from vdnnsim.recordings.trace_operations import Operation
from vdnnsim.recordings.trace_steps import Launch
from vdnnsim.units import GIB, ElementType

_LARGE_BYTES: Final = 32 * 2**20
"""More than any cache holds, so that the rate is that of DRAM."""
_LARGE_COPY_BYTES: Final = 2**20
_RATE_OF_COPIES: Final = 12e9
_LATENCY_S: Final = 10e-6
_PIN_LATENCY_S, _PIN_RATE = 2.3e-3, 9.1e9
_PINNING: Final = "as of titan_x_maxwell, measured on a machine of 2009"
ALGORITHM: Final = "recorded"
_LEAST_SECONDS: Final = 0.5e-6
"""For a recorded time of 0: half the unit of old formats."""
_MOST_INPUTS: Final = 8
_DIGITS: Final = 10
_TYPES: Final = {each.value: each for each in (ElementType.FLOAT32, ElementType.FLOAT16, ElementType.BFLOAT16)}
_DATA: Final = re.compile(r"dgrad|bwd_data|backward_data|backward_input", re.IGNORECASE)
_WEIGHTS: Final = re.compile(r"wgrad|bwd_filter|bwd_weight|backward_weight|backward_filter", re.IGNORECASE)


def write_recorded_profile(path: Path, recorded: RecordedStep, base: Server | None) -> tuple[Path, ...]:
    """Write a profile, named by its path, and its kernel table; figures that traces lack are those of a base profile.

    Raises:
        RecordingError: the trace does not name its GPU, and there is no base; or its figures are impossible.
        OutputError: they cannot be written, or the files there are a user's.
    """
    refuse_foreign_profile(path)
    rows = rows_of(recorded.operations, recorded.works, recorded.batch_size)
    table = kernel_table_text(rows)
    server = _server(recorded, rows, path.stem, base)
    names = [launch.event.name for each in recorded.operations for launch in each.launches]
    kernels = kernels_beside(
        path,
        table,
        tf32=any("tf32" in name.lower() for name in names),
        channels_last=any("nhwc" in name for name in names) and not any("nchwToNhwc" in name for name in names),
    )
    provenance = (
        ("recorded", f"{recorded.step.name} ({recorded.step.why}), {len(recorded.operations)} operations"),
        ("attributed", f"{recorded.attributed_s / recorded.kernel_s:.1%} of the time of its kernels"),
        ("workspaces", "not in a trace: none count"),
    )
    described = f"{server.gpu.name}, as the profiler of PyTorch recorded a training step on it"
    return write_profile(path, replace(server, kernels=kernels, provenance=provenance), described, table)


class _Figures(dict[str, Figure]):
    """The figures of a machine by key path."""

    def __init__(self, trace: str) -> None:
        super().__init__()
        self._trace = trace

    def measured(self, path: str, number: float, source: str) -> float:
        return self._state(path, number, Origin.MEASURED, f"the recorded step: {source}")

    def assumed(self, path: str, number: float, source: str) -> int:
        return self._state(path, number, Origin.ASSUMED, source)  # type: ignore[return-value]

    def _state(self, path: str, number: float, origin: Origin, source: str) -> float:
        limits = definition(path).stated.range
        if not limits.low <= number <= limits.high:
            found = f"{self._trace}: its sizes and times make a {path} of {number:.3g}"
            raise RecordingError(f"{found}, expected {limits.shown}")
        rounded = rounded_figure(path, number)
        self[path] = state(path, rounded, origin, source)
        return rounded


def _server(recorded: RecordedStep, rows: Sequence[KernelRow], name: str, base: Server | None) -> Server:
    """Return the machine, or the base with the figures of the trace."""
    figures, gpu = _Figures(recorded.trace.name), recorded.trace.gpu
    source = "host time of the step but for loading data and waits, by operation"
    issue_s = figures.measured("host.issue", recorded.issue_s, source)
    memory_bytes = units = 0
    if gpu is not None:
        memory_bytes = round(figures.measured("gpu.memory", gpu.memory_bytes, "totalGlobalMem of the trace"))
        units = round(figures.measured("gpu.multiprocessors", gpu.multiprocessors, "numSms of the trace"))
    if base is not None:
        part = base.gpu
        if gpu is not None:
            part = replace(part, name=gpu.name, memory_bytes=memory_bytes, multiprocessors=units)
        merged = {**{each.path: each for each in base.figures}, **figures}
        host = replace(base.host, issue_s=issue_s)
        return replace(base, name=name, gpu=part, host=host, figures=tuple(merged.values()))
    if gpu is None:
        raise RecordingError(
            f"{recorded.trace.name}: does not name its GPU, as formats before 2021; expected --hardware NAME, a "
            "profile of the same card, which states the rest"
        )
    timed = [row for row in rows if row.seconds]
    streams = [row for row in timed if TORCH_OPERATOR.fullmatch(row.shape.operator)]
    large = [row for row in streams if row.nbytes >= _LARGE_BYTES] or streams or timed
    rate = max(row.nbytes / row.seconds for row in large if row.seconds)
    peaks: dict[ElementType, float] = {}
    for each in dict.fromkeys(row.shape.element_type for row in rows):
        fastest = max(row.flop / row.seconds for row in timed if row.shape.element_type is each and row.seconds)
        source = "of the fastest kernel recorded"
        peaks[each] = figures.measured(f"gpu.peak.{each.value}", max(1.0, fastest), source)
    part = Gpu(
        name=gpu.name,
        memory_bytes=memory_bytes,
        flop_per_s=peaks,
        dram_bytes_per_s=figures.measured("gpu.dram_bandwidth", rate, "of the fastest operator that streams"),
        multiprocessors=units,
        granule_bytes=figures.assumed(
            "gpu.granule", GRANULE_BYTES, "unit to which PyTorch's allocator rounds a request"
        ),
    )
    link = _link(recorded, figures)
    host = Host(
        memory_bytes=figures.assumed("host.memory", 64 * GIB, "not in a trace"),
        issue_s=issue_s,
        pin_latency_s=figures.assumed("host.pin_latency", _PIN_LATENCY_S, _PINNING),
        pin_bytes_per_s=figures.assumed("host.pin_bandwidth", _PIN_RATE, _PINNING),
    )
    return Server(name, part, link, host, {}, tuple(figures.values()), cost_model_kind="table")


def _link(recorded: RecordedStep, figures: _Figures) -> Link:
    large = [each for each in recorded.copies if each.nbytes >= _LARGE_COPY_BYTES and each.seconds > 0]
    rates = {
        path: max((each.nbytes / each.seconds for each in large if way in each.name), default=None)
        for path, way in (("link.h2d", "HtoD"), ("link.d2h", "DtoH"))
    }
    either = rates["link.h2d"] or rates["link.d2h"]
    stated = []
    for path, rate in rates.items():
        if rate:
            stated.append(figures.measured(path, rate, "largest copy of the step; pageable memory is slower"))
        elif either:
            stated.append(figures.assumed(path, either, "as in the other direction; no large copy was recorded"))
        else:
            stated.append(figures.assumed(path, _RATE_OF_COPIES, "PCIe gen3 x16; no large copy was recorded"))
    h2d, d2h = stated
    return Link("as recorded", h2d, d2h, figures.assumed("link.latency", _LATENCY_S, "as of titan_x_maxwell"))


@dataclass(slots=True)
class _Found:
    """Work and recorded times of one shape."""

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
    """Return the seconds of each phase of a convolution, by the phases that operators or kernels name.

    Kernels before such a one, as transpositions, prepare it; those behind the last belong to it. If one phase alone is
    named, kernels on its other side are of the other phase; if none is, time is divided equally.
    """
    phases = convolution_phases(work)
    if len(phases) == 1:
        return {phases[0]: operation.seconds}
    named = [_phase(each) for each in operation.launches]
    if not any(named):
        return dict.fromkeys(phases, operation.seconds / len(phases))
    if Phase.BACKWARD_DATA not in named:
        named[: named.index(Phase.BACKWARD_WEIGHTS)] = [Phase.BACKWARD_DATA] * named.index(Phase.BACKWARD_WEIGHTS)
    known = [each for each in named if each is not None]
    behind = known[-1] if Phase.BACKWARD_WEIGHTS in known else Phase.BACKWARD_WEIGHTS
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
    """Yield the shapes of an operation with FLOPs, bytes and seconds."""
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
    # Differences of floats as large as times of day have no more digits.
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
