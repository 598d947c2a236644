"""Power over time from the work of kernels and copies (vDNN paper, V-D).

A kernel moves `KernelCost.dram_bytes` evenly over its time, a copy its bytes through DRAM once.

    P = idle + FLOP/s * J/FLOP + DRAM bytes/s * J/B + link bytes/s * J/B, at most the limit of the board

Limitations: FLOPs are of the direct method, limited by the peak rate of the GPU, so that power is an upper bound (FFT
needs fewer). At its limit a board lowers its clocks; here only power is cut. A kernel without duration draws nothing.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

from vdnnsim.cost.table import CostModel, CostTable
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Power, Server
from vdnnsim.plans.operations import Compute, Offload, Prefetch, Stream
from vdnnsim.plans.trace import IterationTrace, Span
from vdnnsim.units import ElementType


def kernel_bytes(costs: CostTable, kernel: Compute) -> int:
    """Return the bytes that a kernel moves through DRAM."""
    return costs.find(kernel.layer, kernel.phase, kernel.algorithm, kernel.operation).dram_bytes


def copied_bytes(trace: IterationTrace, span: Span) -> int:
    """Return the bytes of a span on the memory stream."""
    copy = trace.plan.operations[span.operation]
    assert isinstance(copy, Offload | Prefetch)
    return trace.plan.copied_bytes(copy)


def copy_slowdown_bound(server: Server) -> float:
    """Return the largest slowdown of a DRAM-bound kernel by copies: peak of the link over that of DRAM.

    The paper has 16 / 336 = 4.7 % (V-B). Raises ProfileError where the profile states no peak of its link.
    """
    peak = server.link.peak_bytes_per_s
    if peak is None:
        raise ProfileError(f"{server.name}: link.peak: is missing, expected the peak rate of the link in one direction")
    return peak / server.gpu.dram_bytes_per_s


SAMPLING_PERIOD_S = 0.05
"""Sampling period of power in nvprof, from CUPTI, whose environment records come every 50 ms:
https://forums.developer.nvidia.com/t/increasing-the-update-period-for-environment-activity-when-using-cuda-activities-api/346670
"""


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Power as a step function: watts[i] from times_s[i] on, the last step until end_s."""

    times_s: tuple[float, ...]
    watts: tuple[float, ...]
    end_s: float

    @property
    def energy_joules(self) -> float:
        return self._energies()[-1]

    @property
    def mean_watts(self) -> float:
        return self.energy_joules / self.end_s

    def maximum_watts(self, window_s: float = SAMPLING_PERIOD_S) -> float:
        """Return the largest mean over a window of repeated iterations, which a profiler can sample.

        By default the window is the period between two samples of nvprof. The mean is largest where an end of the
        window meets a step, as its slope changes only there.
        """
        edges, energies = (*self.times_s, self.end_s), self._energies()

        def energy_until(time_s: float) -> float:
            iterations, rest_s = divmod(time_s, self.end_s)
            step = min(bisect_right(edges, rest_s), len(self.times_s)) - 1
            return iterations * energies[-1] + energies[step] + self.watts[step] * (rest_s - edges[step])

        starts = [place_s for edge_s in self.times_s for place_s in (edge_s, (edge_s - window_s) % self.end_s)]
        return max(energy_until(start_s + window_s) - energy_until(start_s) for start_s in starts) / window_s

    def _energies(self) -> tuple[float, ...]:
        lengths_s = (b - a for a, b in pairwise((*self.times_s, self.end_s)))
        parts = (watts * length_s for watts, length_s in zip(self.watts, lengths_s, strict=True))
        return tuple(accumulate(parts, initial=0.0))


def power_curve(trace: IterationTrace, cost_model: CostModel, server: Server) -> PowerCurve:
    """Return power over the time of an iteration, or raise ProfileError where the profile has no `power`."""
    power = server.power
    if power is None:
        raise ProfileError(f"{server.name}: power: is missing, expected the section with idle, flop, dram and link")
    workload = trace.plan.workload
    costs = cost_model.table(workload)
    changes: list[tuple[float, bool, Stream, float]] = []
    for span in trace.spans:
        seconds = span.end_s - span.start_s
        if seconds <= 0:
            continue
        if span.stream is Stream.COMPUTE:
            watts = _kernel_joules(trace, span, costs, power, server.gpu.flop_per_s) / seconds
        else:
            joules_per_byte = power.joules_per_dram_byte + (power.joules_per_link_byte or 0.0)
            watts = copied_bytes(trace, span) * joules_per_byte / seconds
        changes.append((span.start_s, True, span.stream, watts))
        changes.append((span.end_s, False, span.stream, 0.0))
    # At one time ends come before starts, as a stream runs one operation at a time.
    changes.sort(key=lambda change: change[:2])
    drawn = dict.fromkeys(Stream, 0.0)
    steps = {0.0: power.idle_watts}
    for time_s, _, stream, watts in changes:
        drawn[stream] = watts
        if time_s < trace.iteration_s:
            steps[time_s] = min(power.idle_watts + sum(drawn.values()), power.limit_watts)
    return PowerCurve(tuple(steps), tuple(steps.values()), trace.iteration_s)


def _kernel_joules(
    trace: IterationTrace, span: Span, costs: CostTable, power: Power, peaks: Mapping[ElementType, float]
) -> float:
    kernel, workload = trace.plan.operations[span.operation], trace.plan.workload
    assert isinstance(kernel, Compute)
    computed = workload.arithmetic_type(workload.graph.layers[kernel.layer], kernel.phase)
    # Kernels in a type without a stated peak, TF32 or that of mixed precision, were timed in float32.
    peak_flop_per_s = peaks[computed if computed in peaks else ElementType.FLOAT32]
    counted_flop = sum(workload.step.operation(kernel.layer, kernel.phase).flop.values())
    flop = min(counted_flop, peak_flop_per_s * (span.end_s - span.start_s))
    return flop * power.joules_per_flop + kernel_bytes(costs, kernel) * power.joules_per_dram_byte
