"""The cost table of a workload: seconds, workspace, DRAM traffic and origin of every kernel that it may launch.

A `CostModel` makes the table of any workload.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

from vdnnsim.dnn.kernel_work import NO_SECTORS, ConvolutionWork, Sectors
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.units import ElementType

RECURRENT = "recurrent"
"""Name of the products of recurrent layers, which cuDNN multiplies in the types of its convolutions."""
ONLY = "only"
"""Name of the algorithm of a kernel that has one alone."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """The cost of one algorithm for one phase of a layer.

    Attributes:
        algorithm: its name; of several operations the names of those with a choice.
        seconds: its time alone on the GPU.
        workspaces: the workspaces of a kernel that takes several in turn, of which `workspace_bytes` is the largest.
        origin: of the rates on which most of its seconds rest.
        dram_bytes: DRAM traffic by the same model as its seconds, the bias of a CONV layer included; 0 if not modelled.
        shares: of its seconds by the origin of the rates on which they rest; empty where that is one.
        parts: of several operations, the cost of each; seconds and traffic are their sums, the workspace their maximum.
        issue_s: what the host takes to issue it; None where that is the machine's `host.issue`.
    """

    algorithm: str
    seconds: float
    workspace_bytes: int
    origin: Origin
    dram_bytes: int = 0
    parts: tuple["KernelCost", ...] = ()
    workspaces: tuple[int, ...] = ()
    shares: tuple[tuple[Origin, float], ...] = ()
    issue_s: float | None = None

    def __hash__(self) -> int:
        """Return a hash without that of the parts, hundreds of which a module has; equal costs have equal seconds."""
        return hash((self.algorithm, self.seconds, self.workspace_bytes))

    @property
    def seconds_by_origin(self) -> dict[Origin, float]:
        return {origin: share * self.seconds for origin, share in self.shares or ((self.origin, 1.0),)}

    @classmethod
    def joined(cls, parts: Sequence["KernelCost"]) -> "KernelCost":
        """Return the cost of operations that run one after the other."""
        if len(parts) == 1:
            return parts[0]
        seconds, resting = sum(each.seconds for each in parts), Counter[Origin]()
        for each in parts:
            resting.update(each.seconds_by_origin)
        return cls(
            algorithm=" + ".join(each.algorithm for each in parts if each.algorithm != ONLY) or ONLY,
            seconds=seconds,
            workspace_bytes=max(each.workspace_bytes for each in parts),
            origin=resting.most_common(1)[0][0],
            dram_bytes=sum(each.dram_bytes for each in parts),
            parts=tuple(parts),
            shares=tuple((origin, each / seconds) for origin, each in resting.items()) if len(resting) > 1 else (),
        )

    def of(self, operation: int) -> "KernelCost":
        """Return the cost of one of the operations of the phase."""
        return self.parts[operation] if self.parts else self

    def retimed(self, seconds: Callable[[float], float]) -> "KernelCost":
        """Return the cost with a function applied to the time of every operation."""
        if not self.parts:
            return replace(self, seconds=seconds(self.seconds))
        parts = tuple(each.retimed(seconds) for each in self.parts)
        return replace(self, seconds=sum(each.seconds for each in parts), parts=parts)


def least_workspace(options: Sequence[KernelCost]) -> KernelCost:
    """Return the option with the least workspace, the fastest among equals."""
    return min(options, key=lambda each: (each.workspace_bytes, each.seconds))


def fastest_of(options: Sequence[KernelCost], limit_bytes: int, *, without: Collection[str] = ()) -> KernelCost:
    """Return the fastest option whose workspace keeps to a limit; where none does, the one with the least.

    Options have the fastest first; algorithms that it should do without are not taken as the fastest.
    """
    named = (each for each in options if each.algorithm not in without)
    return next((each for each in named if each.workspace_bytes <= limit_bytes), least_workspace(options))


KernelChoice = Mapping[tuple[int, Phase], KernelCost]
"""The kernel chosen for each layer index and phase."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """The kernels of a workload: (layer index, phase) -> the algorithms on offer, fastest first.

    Attributes:
        gap: what is not modelled, for people: a table of kernels lacks the element type, a roofline has no workspaces.
    """

    kernels: Mapping[tuple[int, Phase], tuple[KernelCost, ...]]
    gap: str = ""

    def options(self, layer: int, phase: Phase) -> tuple[KernelCost, ...]:
        """All algorithms for a phase of a layer, fastest first."""
        return self.kernels[layer, phase]

    def fastest(self, layer: int, phase: Phase) -> KernelCost:
        """The performance-optimal algorithm, (p) in the paper."""
        return self.kernels[layer, phase][0]

    def memory_optimal(self, layer: int, phase: Phase) -> KernelCost:
        """The memory-optimal algorithm, (m) in the paper: the least workspace, the fastest among equals."""
        return least_workspace(self.kernels[layer, phase])

    def find(self, layer: int, phase: Phase, algorithm: str, operation: int | None = None) -> KernelCost:
        """The cost of the algorithm called `algorithm`, or what one of the operations of the phase costs by it."""
        for kernel in self.kernels[layer, phase]:
            if kernel.algorithm == algorithm:
                return kernel if operation is None else kernel.of(operation)
        raise KeyError(f"layer {layer}, {phase.value}: no algorithm {algorithm!r}")


class KernelWork(NamedTuple):
    """A kernel of which only the work is known.

    Attributes:
        name: of the operator in tables of kernels, or of PyTorch.
        nbytes: its compulsory DRAM traffic, if it finds nothing in the L2.
        sizes: of a `product` or of `RECURRENT` layers its count, rows, columns and depth; of another the shape of its
            first operand; empty if not known.
        summed_parts: of a sum of rows, that each thread of its last block adds up (`vdnnsim.cost.thread_limits`).
        elements: which threads take one at a time; 0 where they load words.
        sectors: that threads move which take one at a time.
        repeated_bytes: of `nbytes`, what the kernel before it read, too.
        convolution: that no built layer can be: of volumes, transposed, or dilated; None of other kernels.
    """

    name: str
    element_type: ElementType
    flop: Mapping[Arithmetic, int]
    nbytes: int
    sizes: tuple[int, ...] = ()
    summed_parts: int = 0
    elements: int = 0
    sectors: Sectors = NO_SECTORS
    repeated_bytes: int = 0
    convolution: ConvolutionWork | None = None

    def found_bytes(self, l2_bytes: int) -> int:
        """Return what it finds in an L2: what the kernel before it read, if all of that fits."""
        return self.repeated_bytes if self.repeated_bytes <= l2_bytes else 0


class CostModel(ABC):
    """Makes the cost tables of workloads on one machine."""

    def __init__(self) -> None:
        self._tables: dict[Workload, CostTable] = {}

    def table(self, workload: Workload) -> CostTable:
        """Return the costs of a workload, built once.

        Raises:
            ProfileError: the machine's figures do not cover the workload.
        """
        if workload not in self._tables:
            self._tables[workload] = self._build(workload)
        return self._tables[workload]

    def anew(self) -> Self:
        """Return the same model without the tables that it has built, which would be kept as long as it is."""
        other = copy(self)
        other._tables = {}  # noqa: SLF001 - of its own class
        return other

    def on_multiprocessors(self, count: int) -> "CostModel":  # noqa: ARG002 - for subclasses
        """Return the costs on so many of the GPU's multiprocessors; the same where that is not known."""
        return self

    @abstractmethod
    def _build(self, workload: Workload) -> CostTable:
        """Build the table of a workload."""


class MachineCosts(CostModel):
    """The costs of one machine, also of a kernel of which only the work is known."""

    gap: ClassVar[str] = ""

    def _build(self, workload: Workload) -> CostTable:
        known: dict[Hashable, tuple[KernelCost, ...]] = {}
        kernels: dict[tuple[int, Phase], tuple[KernelCost, ...]] = {}
        for layer in workload.graph.layers:
            for phase in workload.phases(layer):
                key = self._alike(workload, layer, phase)
                if key not in known:
                    known[key] = self._options(workload, layer, phase)
                kernels[layer.index, phase] = known[key]
        return CostTable(kernels, self.gap)

    def _alike(self, _workload: Workload, layer: Layer, phase: Phase) -> Hashable:
        """Return a key that is equal for phases of layers that cost the same."""
        return layer.index, phase

    def _options(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[KernelCost, ...]:
        """Return the algorithms for a phase of a layer, fastest first; by default its one kernel, by its work."""
        operation = workload.step.operation(layer.index, phase)
        name = workload.optimizer.value if phase is Phase.UPDATE else layer.operator.name
        element_type = workload.arithmetic_type(layer, phase)
        return (self.kernel(KernelWork(name, element_type, operation.flop, operation.bytes_moved)),)

    def has_measured(self, operator: str) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether kernels of an operator of PyTorch were measured."""
        return False

    @abstractmethod
    def kernel(self, work: KernelWork) -> KernelCost:
        """Return the cost of a kernel."""

    def laid_out(self, *, channels_last: bool) -> "MachineCosts":  # noqa: ARG002 - for subclasses
        """Return the costs of maps as N, H, W, C, or as N, C, H, W; by default they are the same."""
        return self


AdjustKernels = Callable[[Workload, Layer, Phase, tuple[KernelCost, ...]], tuple[KernelCost, ...]]
"""Returns the changed algorithms for a phase of a layer of a workload."""


class AdjustedCosts(CostModel):
    """The costs of another model, changed kernel by kernel.

    Args:
        adjust: changes the algorithms of a phase; the fastest must stay first.
    """

    def __init__(self, model: CostModel, adjust: AdjustKernels) -> None:
        super().__init__()
        self._model = model
        self._adjust = adjust

    def on_multiprocessors(self, count: int) -> CostModel:
        return AdjustedCosts(self._model.on_multiprocessors(count), self._adjust)

    def _build(self, workload: Workload) -> CostTable:
        table = self._model.table(workload)
        layers = workload.graph.layers
        kernels = {
            (layer, phase): self._adjust(workload, layers[layer], phase, options)
            for (layer, phase), options in table.kernels.items()
        }
        return CostTable(kernels, table.gap)
