"""DRAM traffic of the convolutions, and what the copies of a policy add to it (vDNN paper, V-B and Fig. 13).

A kernel moves the bytes that the cost model has it move (`vdnnsim.cost.table.KernelCost.dram_bytes`): its operands, the
columns or complex maps between its passes, its bias. A copy moves its bytes through DRAM once, evenly while it runs;
one runs at a time, for all are on the memory stream. What a pass reads twice because a cache was too small is not
counted, so that the bandwidth is a lower bound.
"""

from dataclasses import dataclass

from vdnnsim.cost.table import CostModel, CostTable
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Server
from vdnnsim.plans.operations import Compute, Offload, Prefetch, Stream
from vdnnsim.plans.trace import IterationTrace, Span


@dataclass(frozen=True, slots=True)
class KernelTraffic:
    """DRAM traffic while one kernel of a CONV layer runs.

    Attributes:
        layer: index of the layer.
        seconds: how long the kernel runs.
        kernel_bytes: what the kernel itself moves.
        copy_bytes: what copies move meanwhile, a copy that overlaps in part by its share of time.
        peak_bytes_per_s: of the DRAM.
    """

    layer: int
    phase: Phase
    algorithm: str
    seconds: float
    kernel_bytes: int
    copy_bytes: float
    peak_bytes_per_s: float

    @property
    def kernel_bytes_per_s(self) -> float:
        """Bandwidth that the kernel draws on average."""
        return self.kernel_bytes / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Bandwidth that kernel and copies draw on average."""
        return (self.kernel_bytes + self.copy_bytes) / self.seconds

    @property
    def kernel_utilization(self) -> float:
        """Share of the peak that the kernel draws."""
        return self.kernel_bytes_per_s / self.peak_bytes_per_s

    @property
    def utilization(self) -> float:
        """Share of the peak that kernel and copies draw; the simulator does not slow either down above 1."""
        return self.bytes_per_s / self.peak_bytes_per_s

    @property
    def copy_slowdown(self) -> float:
        """How much longer the kernel would take if it were bound by DRAM: time of the copied bytes at the peak."""
        return self.copy_bytes / self.peak_bytes_per_s / self.seconds


def convolution_traffic(trace: IterationTrace, cost_model: CostModel, server: Server) -> tuple[KernelTraffic, ...]:
    """Return the traffic of each kernel of the CONV layers, in the order in which they run.

    A kernel that takes no time has no bandwidth and is left out.
    """
    workload = trace.plan.workload
    costs = cost_model.table(workload)
    copies = trace.spans_on(Stream.MEMORY)
    rows: list[KernelTraffic] = []
    first = 0
    for span, kernel in trace.kernels:
        # Copies run one after the other, so those before this kernel are before all kernels to come.
        while first < len(copies) and copies[first].end_s <= span.start_s:
            first += 1
        if workload.graph.layers[kernel.layer].kind is LayerKind.CONV and span.end_s > span.start_s:
            rows.append(
                KernelTraffic(
                    layer=kernel.layer,
                    phase=kernel.phase,
                    algorithm=kernel.algorithm,
                    seconds=span.end_s - span.start_s,
                    kernel_bytes=kernel_bytes(costs, kernel),
                    copy_bytes=_bytes_meanwhile(trace, span, copies[first:]),
                    peak_bytes_per_s=server.gpu.dram_bytes_per_s,
                )
            )
    return tuple(rows)


def kernel_bytes(costs: CostTable, kernel: Compute) -> int:
    """Return the bytes that a kernel moves through DRAM, by the model that its seconds come from."""
    return costs.find(kernel.layer, kernel.phase, kernel.algorithm, kernel.operation).dram_bytes


def copied_bytes(trace: IterationTrace, span: Span) -> int:
    """Return the bytes that the copy of a span on the memory stream moves."""
    copy = trace.plan.operations[span.operation]
    assert isinstance(copy, Offload | Prefetch)
    return trace.plan.copied_bytes(copy)


def copy_slowdown_bound(server: Server) -> float:
    """Return the most that copies can slow a kernel down that is bound by DRAM: peak of the link over peak of DRAM.

    The paper has 16 / 336 = 4.7 % (V-B).

    Raises:
        ProfileError: the profile does not state the peak of its link.
    """
    peak = server.link.peak_bytes_per_s
    if peak is None:
        raise ProfileError(f"{server.name}: link.peak: is missing, expected the peak rate of the link in one direction")
    return peak / server.gpu.dram_bytes_per_s


def _bytes_meanwhile(trace: IterationTrace, span: Span, copies: tuple[Span, ...]) -> float:
    total = 0.0
    for copy in copies:
        if copy.start_s >= span.end_s:
            break
        overlap_s = min(copy.end_s, span.end_s) - max(copy.start_s, span.start_s)
        if overlap_s > 0:
            total += copied_bytes(trace, copy) * overlap_s / (copy.end_s - copy.start_s)
    return total
