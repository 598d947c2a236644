"""Replays of published measurements, of built networks and of captured ones.

A network is captured at the least and the greatest batch of its rows; batches between follow from the two if sizes grow
linearly (`vdnnsim.dnn.captured_model`), and are else captured as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from vdnnsim.analysis.memory import process_bytes
from vdnnsim.claims.public2026.measurements import (
    ESTIMATED_HARDWARE,
    MEMORY_HARDWARE,
    SERIES,
    AnyRow,
    OperatorTime,
    PeakMemory,
    Series,
    Setup,
    StepTime,
)
from vdnnsim.cost.fit.hosts import PAGEABLE_BYTES_PER_S, ZEROED
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.captured_model import at_batch
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.engine.host import Execution
from vdnnsim.errors import VdnnsimError
from vdnnsim.hardware.server import Host, Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.memory.models import place
from vdnnsim.memory.requests import UNLIMITED_BYTES, Placed, Request
from vdnnsim.memory.settings import GRANULE_BYTES, AllocatorSettings
from vdnnsim.plans.operations import Compute, Stream
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.repetition import STATES_AHEAD
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.scenario.simulator import Simulator

Capture = Callable[[Setup, int], CapturedStep]
"""Captures a network at a batch size, or raises CaptureError."""

BUILT: Final[Mapping[str, str]] = {
    **{f"{library}:resnet{depth}": f"resnet{depth}" for library in ("timm", "torchvision") for depth in (18, 152)},
    **{f"timm:resnet{depth}": f"resnet{depth}" for depth in (34, 50, 101)},
    "torchvision:resnet50": "resnet50",
    "timm:densenet121": "densenet121",
    "timm:mobilenetv2_100": "mobilenet_v2",
    "torchvision:mobilenet_v2": "mobilenet_v2",
    "torchvision:vgg16": "vgg16_torchvision",
}
"""Networks that vdnnsim builds, channels first, for images of 224 pixels: the same operators in the same order."""
_BUILT_IMAGE: Final = 224
_DEVICES: Final[Mapping[str, str]] = {MEMORY_HARDWARE: "cuda 8.0", ESTIMATED_HARDWARE: "cuda 8.6"}
"""Of cards with measured memory; workspaces of captures are of compute capability 8.9."""
_ROUNDED: Final = 0.006e6
"""Rounding error of parameters that are stated in millions with two digits."""


class LeftOutError(Exception):
    """Why a row has no replay, in a few words."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a batch fits, and the next larger one; None if none was tried."""

    fits: bool
    next_fits: bool | None

    @property
    def in_bracket(self) -> bool:
        """Whether the largest batch of the replay is that of the GPU."""
        return self.fits and not self.next_fits

    def __str__(self) -> str:
        if not self.fits:
            return "smaller"
        return "larger" if self.next_fits else "in its bracket"


@dataclass
class PublicRuns:
    """Replays of rows, or LeftOutError where a row has none; only those of one network are cached at a time.

    Attributes:
        capture: of networks that vdnnsim does not build; None leaves them out.
    """

    machines: Mapping[str, Server] = field(repr=False)
    capture: Capture | None
    batches: Mapping[Setup, Sequence[int]] = field(repr=False)
    _steps: dict[tuple[Setup, int], CapturedStep] = field(default_factory=dict, repr=False)
    _refused: dict[Setup, str] = field(default_factory=dict, repr=False)
    _workloads: dict[tuple[Setup, int], Workload] = field(default_factory=dict, repr=False)
    _costs: dict[str, CostModel] = field(default_factory=dict, repr=False)

    def seconds(self, row: StepTime) -> float:
        """Seconds of an iteration in unlimited memory."""
        workload = self._workload_of(row)
        self._check(row, workload)
        return self._trace(workload, row).iteration_s + _script_s(row, workload, self._server(row).host)

    def fit(self, row: StepTime) -> Fit:
        self._check(row, self._workload(row.setup, row.batch_size))
        larger = row.next_batch
        fits = self._fits(row, row.batch_size)
        return Fit(fits, None if larger is None else self._fits(row, larger))

    def operator_seconds(self, row: OperatorTime) -> float:
        """Seconds of all kernels of a kind of layers, forward or backward."""
        workload = self._workload(row.setup, row.batch_size)
        layers = workload.graph.layers
        trace = self._trace(workload, row)
        return sum(
            span.end_s - span.start_s
            for span in trace.spans_on(Stream.COMPUTE)
            if isinstance(kernel := trace.plan.operations[span.operation], Compute)
            and layers[kernel.layer].kind is row.kind
            and (kernel.phase is Phase.FORWARD if row.is_forward else kernel.phase.is_backward)
        )

    def peak_bytes(self, row: PeakMemory) -> int:
        """Peak of the process memory, or what of it a script counted."""
        script, workload = SERIES[row.series], _on_card(self._workload_of(row), row.hardware)
        ahead = round(script.batches_ahead * _images_bytes(workload))
        self._check_library(script, workload)
        trace = self._trace(workload, row)
        if not script.counts_from:
            return process_bytes(trace, self._server(row).gpu) + ahead
        return trace.pool_bytes + ahead - (_bytes_before(trace, row) if script.counts_from == "batches" else 0)

    def _check_library(self, script: Series, workload: Workload) -> None:
        """Refuse the network of another version of a library than the measured one."""
        if (
            script.library
            and isinstance(workload, CapturedWorkload)
            and script.library not in workload.captured.framework
        ):
            raise LeftOutError(f"is of {script.library}, and captured with {workload.captured.framework}")

    def _server(self, row: AnyRow) -> Server:
        """Return the machine of a row, with the context of its version of CUDA."""
        server = self.machines[row.hardware]
        if not SERIES[row.series].loads_all_kernels or not server.gpu.eager_context_bytes:
            return server
        return replace(server, gpu=replace(server.gpu, context_bytes=server.gpu.eager_context_bytes))

    def _simulator(self, workload: Workload, row: AnyRow) -> Simulator:
        server = self._server(row)
        costs = self._costs.setdefault(row.hardware, ServerCosts(server))
        searches = SERIES[row.series].cudnn_benchmark and isinstance(workload, CapturedWorkload)
        model = AllocatorSettings(cudnn_benchmark=True) if searches else MemoryModel.PYTORCH
        execution = Execution.COMPILED if row.setup.compiled else Execution.EAGER
        return Simulator.of(workload, server, model, PinnedMemory.ARENA, cost_model=costs, execution=execution)

    def _fits(self, row: StepTime, batch_size: int) -> bool:
        simulator = self._simulator(self._workload(row.setup, batch_size), row)
        return isinstance(simulator.place(_policy(row).plan(simulator.setting())), Placement)

    def _trace(self, workload: Workload, row: AnyRow) -> IterationTrace:
        simulator = self._simulator(workload, row)
        try:
            plan = _policy(row).plan(simulator.setting())
        except VdnnsimError as refusal:
            raise LeftOutError(str(refusal)) from refusal
        return simulator.replay((plan,), (simulator.place_unlimited(plan),)).gpus[0]

    def _workload_of(self, row: StepTime | PeakMemory) -> Workload:
        """Return the workload of a row, with its micro-batches."""
        workload, samples = self._workload(row.setup, row.batch_size), SERIES[row.series].samples
        if not samples:
            return workload
        assert isinstance(workload, CapturedWorkload), "micro-batches are of captured networks"
        return CapturedWorkload.of(workload.captured, samples // row.batch_size)

    def _workload(self, setup: Setup, batch_size: int) -> Workload:
        key = setup, batch_size
        if key not in self._workloads:
            if any(other != setup for other, _ in self._workloads):
                for remembered in (self._workloads, self._steps, self._costs):
                    remembered.clear()
            self._workloads[key] = self._made(setup, batch_size)
        return self._workloads[key]

    def _made(self, setup: Setup, batch_size: int) -> Workload:
        built = BUILT.get(setup.network)
        if built is not None and setup.image in (None, _BUILT_IMAGE) and not setup.channels_last:
            # Built networks are updated without weight decay.
            optimizer = Optimizer(setup.optimizer.removesuffix("_decay"))
            return Workload.in_precision(build_network(built), batch_size, setup.precision, optimizer, setup.mode)
        return CapturedWorkload.of(self._step(setup, batch_size))

    def _step(self, setup: Setup, batch_size: int) -> CapturedStep:
        asked = self.batches[setup]
        low, high = min(asked), max(asked)
        if batch_size in (low, high):
            return self._captured(setup, batch_size)
        extended = at_batch(self._captured(setup, low), self._captured(setup, high), batch_size)
        return extended if isinstance(extended, CapturedStep) else self._captured(setup, batch_size)

    def _captured(self, setup: Setup, batch_size: int) -> CapturedStep:
        if self.capture is None:
            raise LeftOutError("takes PyTorch and the library of the network")
        if setup in self._refused:
            raise LeftOutError(self._refused[setup])
        key = setup, batch_size
        if key not in self._steps:
            try:
                self._steps[key] = self.capture(setup, batch_size)
            except VdnnsimError as refusal:
                self._refused[setup] = str(refusal)
                raise LeftOutError(str(refusal)) from refusal
        return self._steps[key]

    def _check(self, row: StepTime, workload: Workload) -> None:
        if not isinstance(workload, CapturedWorkload):
            return
        step = workload.captured
        if row.parameters is not None and abs(step.parameters - row.parameters) > _ROUNDED:
            raise LeftOutError(
                f"has {step.parameters / 1e6:.2f} million parameters today, {row.parameters / 1e6:.2f} when measured"
            )
        if not SERIES[row.series].fused_attention and any(
            "scaled_dot_product" in each.name for each in step.operations
        ):
            raise LeftOutError("has fused attention today, which the PyTorch that was measured had not")


def _bytes_before(trace: IterationTrace, row: PeakMemory) -> int:
    """Return what PyTorch reserves for weights, and for states that are made with the optimizer, one by one."""
    kinds = {BufferKind.WEIGHTS} | ({BufferKind.OPTIMIZER_STATE} if row.setup.optimizer in STATES_AHEAD else set())
    buffers = enumerate(trace.plan.buffers)
    requests = [Request(at, each.nbytes) for at, each in buffers if each.given and each.kind in kinds]
    placed = place(requests, MemoryModel.PYTORCH, UNLIMITED_BYTES, GRANULE_BYTES)
    assert isinstance(placed, Placed)
    return placed.pool_bytes


def _on_card(workload: Workload, hardware: str) -> Workload:
    if not isinstance(workload, CapturedWorkload) or hardware not in _DEVICES:
        return workload
    return CapturedWorkload.of(msgspec.structs.replace(workload.captured, device=_DEVICES[hardware]))


def _script_s(row: StepTime, workload: Workload, host: Host) -> float:
    """Return the time of a script outside of the iteration: copies of images, and zeroing of kept gradients.

    Each gradient takes a third of an operator to zero, and backward adds to it (`vdnnsim.cost.fit.hosts`).
    """
    script = SERIES[row.series]
    copy_s = _images_bytes(workload) / PAGEABLE_BYTES_PER_S if script.copies_images else 0.0
    if script.set_to_none or not workload.is_training:
        return copy_s
    return copy_s + _parameters(workload) * (host.dispatch_forward_s * ZEROED + 2 * host.issue_s)


def _parameters(workload: Workload) -> int:
    if isinstance(workload, CapturedWorkload):
        return sum(each.given and each.kind is BufferKind.WEIGHTS for each in workload.captured.storages)
    weighty = (each for each in workload.graph.layers if workload.weight_bytes(each))
    return sum(2 if getattr(each.operator, "bias", True) else 1 for each in weighty)


def _policy(row: AnyRow) -> PyTorch:
    return PyTorch(set_to_none=SERIES[row.series].set_to_none or row.setup.mode is Mode.INFERENCE)


def _images_bytes(workload: Workload) -> int:
    if not isinstance(workload, CapturedWorkload):
        return workload.map_bytes(0)
    given = (each for each in workload.captured.storages if each.given)
    return sum(each.nbytes for each in given if each.kind is BufferKind.FEATURE_MAP)
