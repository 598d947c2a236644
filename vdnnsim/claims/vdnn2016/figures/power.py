"""The power section: mean and maximum power with and without vDNN; the paper has it in words alone (V-D)."""

from dataclasses import dataclass

from vdnnsim.analysis.power import SAMPLING_PERIOD_S, power_curve
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.vdnn2016.figures.figure import PaperFigure, case_names, extremes
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VdnnRuns
from vdnnsim.report.chart import Axis, Chart, Panel, Series, Slot, Tint
from vdnnsim.report.scale import Scale
from vdnnsim.units import format_seconds

_CASES = CONVENTIONAL[:-1]
"""VGG-16 (256) cannot be trained without vDNN, so the paper compares the other five."""
_MEMORY_OPTIMAL: NetworkBatch = ("vgg16", 128)
"""The one that the paper runs with memory-optimal algorithms."""
_SLOTS = ("base", "dyn", "all")


@dataclass(frozen=True, slots=True)
class _Drawn:
    result: PolicyResult
    mean_watts: float
    maximum_watts: float
    energy_joules: float
    peak_watts: float


def power_section(runs: VdnnRuns) -> PaperFigure:
    """Mean and maximum power of the baseline, of vDNN_dyn and of vDNN_all."""
    names = case_names(_CASES)
    drawn = {slot: [_measure(runs, case, _policy(case, slot)) for case in _CASES] for slot in _SLOTS}
    maximum = {slot: _overheads([d.maximum_watts for d in drawn[slot]], drawn["base"]) for slot in _SLOTS}
    mean = {slot: _overheads([d.mean_watts for d in drawn[slot]], drawn["base"], mean=True) for slot in _SLOTS}
    peaks = [each.peak_watts / before.peak_watts - 1 for each, before in zip(drawn["all"], drawn["base"], strict=True)]
    idle = sum(not each.result.metrics.offloaded_bytes for each in drawn["dyn"])
    return PaperFigure(
        stem="power",
        name="Power (V-D)",
        caption="Mean and maximum GPU power of the baseline and of vDNN; the paper has no picture of it. VGG-16 (128) "
        "runs with memory-optimal algorithms, all others with performance-optimal ones.",
        header=(
            "network",
            "batch_size",
            "policy",
            "fits",
            "mean_watts",
            "maximum_watts",
            "peak_watts",
            "energy_joules",
            "mean_overhead",
            "maximum_overhead",
        ),
        rows=tuple(
            (
                *case,
                _policy(case, slot),
                drawn[slot][number].result.fits,
                drawn[slot][number].mean_watts,
                drawn[slot][number].maximum_watts,
                drawn[slot][number].peak_watts,
                drawn[slot][number].energy_joules,
                mean[slot][number],
                maximum[slot][number],
            )
            for number, case in enumerate(_CASES)
            for slot in _SLOTS
        ),
        chart=Chart(
            f"vDNN_dyn changes maximum power by {_signed(min(maximum['dyn']))} to {_signed(max(maximum['dyn']))}",
            f"Power section: mean over an iteration, and largest mean over {format_seconds(SAMPLING_PERIOD_S)}, which "
            "nvprof samples; VGG-16 (128) under (m); * does not fit",
            (
                Panel(
                    names,
                    tuple(
                        Slot(
                            slot,
                            (
                                (Series("mean power", Tint.MEAN, tuple(each.mean_watts for each in drawn[slot])),),
                                (Series("maximum", Tint.MAXIMUM, tuple(each.maximum_watts for each in drawn[slot])),),
                            ),
                            tuple(not each.result.fits for each in drawn[slot]),
                        )
                        for slot in _SLOTS
                    ),
                    Axis("GPU power", Scale("W", 1.0, 0)),
                ),
            ),
        ),
        paper_says=(
            (
                "vDNN_dyn incurs 1 % to 7 % of maximum power; its copies are one of the biggest contributors to peaks "
                "(V-D)."
            ),
            "Average power is rarely affected (V-D).",
        ),
        replay_shows=(
            (
                f"Maximum power changes by {extremes(names, maximum['dyn'], _signed)} under dyn and by "
                f"{extremes(names, maximum['all'], _signed)} under all."
            ),
            (
                f"Mean power changes by {extremes(names, mean['dyn'], _signed)} under dyn and by "
                f"{extremes(names, mean['all'], _signed)} under all."
            ),
            (
                f"The highest power of any moment changes by {extremes(names, peaks, _signed)} under all, where a copy "
                "runs beside a kernel."
            ),
            f"dyn copies nothing in {idle} of the {len(names)} networks: there it does what the baseline does.",
        ),
        differs=(
            (
                "A network that fits is trained by vDNN_dyn without any copy, so the replay has no reason for its "
                "power to rise; the paper measured a rise all the same. What copies cost shows under vDNN_all."
            ),
            (
                "The maximum is the largest mean over a sampling period. Stalls lower that mean, copies beside kernels "
                "raise it, and the former may outweigh the latter; the highest power of any moment, in the CSV, has no "
                "such mean."
            ),
            (
                "For VGG-16 (128) the paper trains the baseline with memory-optimal algorithms. vDNN_dyn would choose "
                "faster ones, whose power is not comparable; vDNN_conv(m) stands in for it, which offloads the same "
                "maps with the algorithms of the baseline."
            ),
            (
                "Power is a model: idle power and the energy of a FLOP and of a byte, with origins in the hardware "
                "profile. FLOPs are those of the direct method, an upper bound where FFT does fewer; DRAM traffic is "
                "that of the cost model, a lower bound. Power is cut at the limit of the board: a kernel that is there "
                "already cannot show what a copy adds."
            ),
        ),
    )


def _policy(case: NetworkBatch, slot: str) -> str:
    if case == _MEMORY_OPTIMAL:
        return {"base": "base(m)", "dyn": "vdnn_conv(m)", "all": "vdnn_all(m)"}[slot]
    return {"base": "base(p)", "dyn": "vdnn_dyn", "all": "vdnn_all(p)"}[slot]


def _measure(runs: VdnnRuns, case: NetworkBatch, policy: str) -> _Drawn:
    simulator, result = runs.simulator(*case), runs.result(*case, policy)
    curve = power_curve(result.trace, simulator.cost_model, runs.server)
    return _Drawn(
        result, curve.mean_watts, curve.maximum_watts(SAMPLING_PERIOD_S), curve.energy_joules, max(curve.watts)
    )


def _overheads(watts: list[float], base: list[_Drawn], *, mean: bool = False) -> list[float]:
    return [
        each / (before.mean_watts if mean else before.maximum_watts) - 1
        for each, before in zip(watts, base, strict=True)
    ]


def _signed(fraction: float) -> str:
    # Adding zero turns -0.0 into 0.0.
    return f"{round(100 * fraction, 1) + 0.0:+.1f} %"
