"""The power section: mean and maximum power with and without vDNN; the paper has it in words alone (V-D)."""

from dataclasses import dataclass

from vdnnsim.analysis.power import SAMPLING_PERIOD_S, power_curve
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.report import SimulatedFigure
from vdnnsim.claims.vdnn2016.figures.figure import case_names, extremes, result_columns
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


def power_section(runs: VdnnRuns) -> SimulatedFigure:
    """Mean and maximum power of the baseline, of vDNN_dyn and of vDNN_all."""
    names = case_names(_CASES)
    drawn = {slot: [_measure(runs, case, _policy(case, slot)) for case in _CASES] for slot in _SLOTS}
    maximum = {slot: _overheads([d.maximum_watts for d in drawn[slot]], drawn["base"]) for slot in _SLOTS}
    mean = {slot: _overheads([d.mean_watts for d in drawn[slot]], drawn["base"], mean=True) for slot in _SLOTS}
    peaks = [each.peak_watts / before.peak_watts - 1 for each, before in zip(drawn["all"], drawn["base"], strict=True)]
    idle = sum(not each.result.metrics.offloaded_bytes for each in drawn["dyn"])
    places = [(number, case, slot) for number, case in enumerate(_CASES) for slot in _SLOTS]
    return SimulatedFigure(
        stem="power",
        columns={
            **result_columns([(case, _policy(case, slot), drawn[slot][n].result) for n, case, slot in places]),
            **{
                name: [getattr(drawn[slot][n], name) for n, _, slot in places]
                for name in ("mean_watts", "maximum_watts", "peak_watts", "energy_joules")
            },
            "mean_overhead": [mean[slot][n] for n, _, slot in places],
            "maximum_overhead": [maximum[slot][n] for n, _, slot in places],
        },
        chart=Chart(
            f"vDNN_dyn changes maximum power by {_signed(min(maximum['dyn']))} to {_signed(max(maximum['dyn']))}",
            f"Power section: mean over an iteration, and largest mean over {format_seconds(SAMPLING_PERIOD_S)}, which "
            "nvprof samples; VGG-16 (128) under (m); * does not fit",
            (Panel(names, tuple(_slot(slot, drawn[slot]) for slot in _SLOTS), Axis("GPU power", Scale("W", 1.0, 0))),),
        ),
        facts={
            "maximum": {slot: extremes(names, maximum[slot], _signed) for slot in _SLOTS},
            "mean": {slot: extremes(names, mean[slot], _signed) for slot in _SLOTS},
            "peaks": extremes(names, peaks, _signed),
            "idle": idle,
            "networks": len(names),
        },
    )


def _slot(name: str, drawn: list[_Drawn]) -> Slot:
    bars = (
        (Series("mean power", Tint.MEAN, tuple(each.mean_watts for each in drawn)),),
        (Series("maximum", Tint.MAXIMUM, tuple(each.maximum_watts for each in drawn)),),
    )
    return Slot(bars, name, tuple(not each.result.fits for each in drawn))


def _policy(case: NetworkBatch, slot: str) -> str:
    if case == _MEMORY_OPTIMAL:
        return {"base": "base(m)", "dyn": "vdnn_conv(m)", "all": "vdnn_all(m)"}[slot]
    return {"base": "base(p)", "dyn": "vdnn_dyn", "all": "vdnn_all(p)"}[slot]


def _measure(runs: VdnnRuns, case: NetworkBatch, policy: str) -> _Drawn:
    simulator, result = runs.simulator(*case), runs.result(*case, policy)
    curve = power_curve(result.trace, simulator.cost_model, runs.server)
    return _Drawn(result, curve.mean_watts, curve.maximum_watts(), curve.energy_joules, max(curve.watts))


def _overheads(watts: list[float], base: list[_Drawn], *, mean: bool = False) -> list[float]:
    return [
        each / (before.mean_watts if mean else before.maximum_watts) - 1
        for each, before in zip(watts, base, strict=True)
    ]


def _signed(fraction: float) -> str:
    # Adding zero turns -0.0 into 0.0.
    return f"{round(100 * fraction, 1) + 0.0:+.1f} %"
