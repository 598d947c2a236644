"""DRAM traffic of convolutions (vDNN paper, V-B).

A kernel moves `KernelCost.dram_bytes` evenly over its time, a copy its bytes through DRAM once. Repeated reads by cache
misses are not counted, so bandwidths are lower bounds.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from vdnnsim.claims.vdnn2016.power import copied_bytes, kernel_bytes
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.hardware.server import Server
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.trace import IterationTrace, Span


@dataclass(frozen=True, slots=True)
class KernelTraffic:
    """DRAM traffic while one kernel of a CONV layer runs.

    Attributes:
        layer: its index.
        kernel_bytes: moved by the kernel.
        copy_bytes: moved by copies at the same time, in proportion to their overlap.
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
        """Mean bandwidth of the kernel."""
        return self.kernel_bytes / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Mean bandwidth of kernel and copies."""
        return (self.kernel_bytes + self.copy_bytes) / self.seconds

    @property
    def kernel_utilization(self) -> float:
        """Share of the peak that the kernel uses."""
        return self.kernel_bytes_per_s / self.peak_bytes_per_s

    @property
    def utilization(self) -> float:
        """Share of the peak that kernel and copies use; above 1 the simulator slows neither."""
        return self.bytes_per_s / self.peak_bytes_per_s

    @property
    def copy_slowdown(self) -> float:
        """Slowdown of a DRAM-bound kernel: time of the copied bytes at the peak, over its own."""
        return self.copy_bytes / self.peak_bytes_per_s / self.seconds


def convolution_traffic(trace: IterationTrace, cost_model: CostModel, server: Server) -> tuple[KernelTraffic, ...]:
    """Return the traffic of each kernel of the CONV layers in order; kernels without duration are left out."""
    workload = trace.plan.workload
    costs = cost_model.table(workload)
    copies = trace.spans_on(Stream.MEMORY)
    return tuple(
        KernelTraffic(
            layer=kernel.layer,
            phase=kernel.phase,
            algorithm=kernel.algorithm,
            seconds=span.end_s - span.start_s,
            kernel_bytes=kernel_bytes(costs, kernel),
            copy_bytes=_bytes_meanwhile(trace, span, copies),
            peak_bytes_per_s=server.gpu.dram_bytes_per_s,
        )
        for span, kernel in trace.kernels
        if workload.graph.layers[kernel.layer].kind is LayerKind.CONV and span.end_s > span.start_s
    )


def _bytes_meanwhile(trace: IterationTrace, span: Span, copies: tuple[Span, ...]) -> float:
    # Copies run one after another, so both starts and ends are sorted.
    first = bisect_right(copies, span.start_s, key=lambda copy: copy.end_s)
    behind = bisect_left(copies, span.end_s, key=lambda copy: copy.start_s)
    total = 0.0
    for copy in copies[first:behind]:
        overlap_s = min(copy.end_s, span.end_s) - max(copy.start_s, span.start_s)
        if overlap_s > 0:
            total += copied_bytes(trace, copy) * overlap_s / (copy.end_s - copy.start_s)
    return total
