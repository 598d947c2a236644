"""The cost table: seconds, workspace and DRAM traffic of every kernel a workload may launch, each with its origin."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin

ONLY = "only"
"""Name of the algorithm of a kernel that offers no choice."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One way to compute one phase of one layer.

    Attributes:
        seconds: its time alone on the GPU.
        workspace_bytes: memory that it needs while it runs.
        dram_bytes: what it moves through DRAM by the same model as its seconds, the bias of a CONV layer included
            (`vdnnsim.cost.convolution_time`); compulsory traffic where it is one roofline. 0 if not modelled.
    """

    algorithm: str
    seconds: float
    workspace_bytes: int
    origin: Origin
    dram_bytes: int = 0


KernelChoice = Mapping[tuple[int, Phase], KernelCost]
"""The kernel chosen for each layer index and phase."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """The kernels of a workload: (layer index, phase) -> the algorithms on offer, fastest first.

    Attributes:
        of_images: the table of the same layers with a batch of so many images, where that can be known.
        gap: what is to be said of a table of measured kernels that lacks the element type; empty where there is
            nothing to say.
    """

    kernels: Mapping[tuple[int, Phase], tuple[KernelCost, ...]]
    of_images: Callable[[int], "CostTable"] | None = field(default=None, compare=False, repr=False)
    gap: str = ""

    def options(self, layer: int, phase: Phase) -> tuple[KernelCost, ...]:
        """All algorithms for a phase of a layer, fastest first."""
        return self.kernels[layer, phase]

    def fastest(self, layer: int, phase: Phase) -> KernelCost:
        """The performance-optimal algorithm, (p) in the paper."""
        return self.kernels[layer, phase][0]

    def memory_optimal(self, layer: int, phase: Phase) -> KernelCost:
        """The memory-optimal algorithm, (m) in the paper: the least workspace, the fastest among equals."""
        return min(self.kernels[layer, phase], key=lambda kernel: (kernel.workspace_bytes, kernel.seconds))

    def find(self, layer: int, phase: Phase, algorithm: str, images: int = 0) -> KernelCost:
        """The cost of the algorithm called `algorithm`, over the whole batch or over so many images of it."""
        if images:
            assert self.of_images is not None, "a plan for a part of the batch was made from costs of parts"
            return self.of_images(images).find(layer, phase, algorithm)
        for kernel in self.kernels[layer, phase]:
            if kernel.algorithm == algorithm:
                return kernel
        raise KeyError(f"layer {layer}, {phase.value}: no algorithm {algorithm!r}")
