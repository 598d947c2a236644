"""The cost table: seconds, workspace and DRAM traffic of every kernel a workload may launch, each with its origin.

A table is of one workload: of its batch and its parts, its element type and its saving rule. A `CostModel` makes the
table of any.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.units import ElementType

ONLY = "only"
"""Name of the algorithm of a kernel that offers no choice."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One way to compute one phase of one layer.

    Attributes:
        algorithm: its name; of several operations the names of those that offer a choice.
        seconds: its time alone on the GPU.
        workspace_bytes: memory that it needs while it runs.
        workspaces: of one that takes several in turn, each; the largest is the one above.
        dram_bytes: what it moves through DRAM by the same model as its seconds, the bias of a CONV layer included
            (`vdnnsim.cost.convolution_time`); compulsory traffic where it is one roofline. 0 if not modelled.
        parts: of a phase that is several operations, the cost of each in their order; the seconds and traffic above are
            their sums, the workspace is their largest.
    """

    algorithm: str
    seconds: float
    workspace_bytes: int
    origin: Origin
    dram_bytes: int = 0
    parts: tuple["KernelCost", ...] = ()
    workspaces: tuple[int, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence["KernelCost"]) -> "KernelCost":
        """Return the cost of operations that run one after the other; its origin is that of the longest."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            algorithm=" + ".join(each.algorithm for each in parts if each.algorithm != ONLY) or ONLY,
            seconds=sum(each.seconds for each in parts),
            workspace_bytes=max(each.workspace_bytes for each in parts),
            origin=max(parts, key=lambda each: each.seconds).origin,
            dram_bytes=sum(each.dram_bytes for each in parts),
            parts=tuple(parts),
        )

    def of(self, operation: int) -> "KernelCost":
        """Return the cost of one of the operations of the phase."""
        return self.parts[operation] if self.parts else self

    def retimed(self, seconds: Callable[[float], float]) -> "KernelCost":
        """Return what it costs where every operation takes what a function makes of its time."""
        if not self.parts:
            return replace(self, seconds=seconds(self.seconds))
        parts = tuple(each.retimed(seconds) for each in self.parts)
        return replace(self, seconds=sum(each.seconds for each in parts), parts=parts)


def least_workspace(options: Sequence[KernelCost]) -> KernelCost:
    """Return the option with the least workspace, the fastest among equals."""
    return min(options, key=lambda each: (each.workspace_bytes, each.seconds))


def fastest_of(options: Sequence[KernelCost], limit_bytes: int, *, without: Collection[str] = ()) -> KernelCost:
    """Return the fastest option whose workspace keeps to a limit; where none does, the one with the least.

    Args:
        options: the fastest first.
        limit_bytes: of workspace.
        without: names of algorithms that are not among the first.
    """
    named = (each for each in options if each.algorithm not in without)
    return next((each for each in named if each.workspace_bytes <= limit_bytes), least_workspace(options))


KernelChoice = Mapping[tuple[int, Phase], KernelCost]
"""The kernel chosen for each layer index and phase."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """The kernels of a workload: (layer index, phase) -> the algorithms on offer, fastest first.

    Attributes:
        gap: what is to be said of what is not known: a table of measured kernels lacks the element type, a roofline
            knows no workspaces; empty where there is nothing to say.
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


class CostModel(ABC):
    """Says what the kernels of any workload cost on one machine; a subclass says it of one kernel after the other."""

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

    @abstractmethod
    def _build(self, workload: Workload) -> CostTable:
        """Build the table of a workload."""


class MachineCosts(CostModel):
    """The costs of one machine, which can also be asked for a kernel of which only its work is known.

    Attributes:
        gap: that of its tables.
    """

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
        """Return what phases of layers of a workload have in common that cost the same."""
        return layer.index, phase

    def _options(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[KernelCost, ...]:
        """Return the algorithms on offer for a phase of a layer, fastest first: that of its kernel, by its work."""
        operation = workload.step.operation(layer.index, phase)
        name = workload.optimizer.value if phase is Phase.UPDATE else layer.operator.name
        return (self.kernel(name, workload.arithmetic_type(layer, phase), operation.flop, operation.bytes_moved),)

    @abstractmethod
    def kernel(
        self,
        name: str,
        element_type: ElementType,
        flop: Mapping[Arithmetic, int],
        nbytes: int,
        sizes: tuple[int, ...] = (),
    ) -> KernelCost:
        """Return what a kernel costs.

        Args:
            name: the operator's word in tables of kernels, or another that no table has.
            element_type: in which it computes.
            flop: by kind of arithmetic.
            nbytes: its compulsory DRAM traffic.
            sizes: of a `product` how many there are, their rows, columns and depth; of another the shape of what it
                reads first; empty where nobody knows.

        Raises:
            ProfileError: the machine's figures do not cover the element type.
        """

    def laid_out(self, *, channels_last: bool) -> "MachineCosts":  # noqa: ARG002 - for those that tell layouts apart
        """Return the costs of maps that lie as N, H, W, C, or as N, C, H, W; itself unless a model tells them apart."""
        return self


AdjustKernels = Callable[[Workload, Layer, Phase, tuple[KernelCost, ...]], tuple[KernelCost, ...]]
"""What becomes of the algorithms on offer for a phase of a layer of a workload."""


class AdjustedCosts(CostModel):
    """The costs of another model, changed kernel by kernel: stretched, sped up, with workspaces that a device states.

    Args:
        model: whose costs they are.
        adjust: what becomes of them; the fastest must stay first.
    """

    def __init__(self, model: CostModel, adjust: AdjustKernels) -> None:
        super().__init__()
        self._model = model
        self._adjust = adjust

    def _build(self, workload: Workload) -> CostTable:
        table = self._model.table(workload)
        layers = workload.graph.layers
        kernels = {
            (layer, phase): self._adjust(workload, layers[layer], phase, options)
            for (layer, phase), options in table.kernels.items()
        }
        return CostTable(kernels, table.gap)
