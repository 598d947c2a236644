"""Figure 11: mean and maximum GPU memory of each policy, and what it saves."""

from statistics import fmean

from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import stated
from vdnnsim.claims.report import SimulatedFigure
from vdnnsim.claims.vdnn2016.figures.figure import (
    POLICY_LABELS,
    beside_the_paper,
    case_names,
    extremes,
    percent_axis,
    result_columns,
    whole_percent,
)
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VdnnRuns
from vdnnsim.report.chart import Chart
from vdnnsim.report.scale import percent
from vdnnsim.units import format_bytes


def figure_11(runs: VdnnRuns) -> SimulatedFigure:
    """Mean and maximum memory of each policy, and what the mean saves."""
    names = case_names(CONVENTIONAL)
    results = {(case, policy): runs.result(*case, policy) for case in CONVENTIONAL for policy in POLICY_LABELS}
    whole = {case: runs.oracle(*case).metrics.max_memory_bytes for case in CONVENTIONAL}

    def savings(policy: str, which: int) -> list[float]:
        """One minus mean (0) or maximum (1) over the whole baseline, by network."""
        return [1 - _drawn(results[case, policy])[which] / whole[case] for case in CONVENTIONAL]

    offloading = ("vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(p)", "vdnn_dyn")
    best = [max(savings(policy, 0)[i] for policy in POLICY_LABELS) for i in range(len(CONVENTIONAL))]
    failing = [case for case in CONVENTIONAL if not runs.oracle(*case).fits]
    spare = runs.server.gpu.memory_bytes - results[("vgg16", 128), "base(m)"].metrics.max_memory_bytes
    without_pool = runs.result("vgg16", 128, "vdnn_all(m)", prefetch_search="fig10_without_pool")
    dyn_fits = sum(results[case, "vdnn_dyn"].fits for case in CONVENTIONAL)
    return SimulatedFigure(
        stem="figure11",
        columns={
            **result_columns(
                [(*key, result) for key, result in results.items()],
                "feature_step_mean_memory_bytes",
                "feature_max_memory_bytes",
            ),
            "whole_mean_memory_bytes": [each.metrics.mean_memory_bytes for each in results.values()],
            "whole_max_memory_bytes": [each.metrics.max_memory_bytes for each in results.values()],
            "mean_savings_of_baseline": [1 - _drawn(each)[0] / whole[case] for (case, _), each in results.items()],
            "max_savings_of_baseline": [1 - _drawn(each)[1] / whole[case] for (case, _), each in results.items()],
            "whole_mean_savings": [
                1 - each.metrics.mean_memory_bytes / whole[case] for (case, _), each in results.items()
            ],
            "whole_max_savings": [
                1 - each.metrics.max_memory_bytes / whole[case] for (case, _), each in results.items()
            ],
        },
        chart=Chart(
            f"vDNN_all(m) cuts average memory by {whole_percent(fmean(savings('vdnn_all(m)', 0)))}; "
            f"vDNN_dyn fits {dyn_fits} of {len(names)} networks, base(p) {len(names) - len(failing)}",
            "Fig. 11: what feature extraction takes less than the whole base(p), mean of six networks; the text of the "
            "paper beside the replay",
            tuple(
                beside_the_paper(
                    [POLICY_LABELS[policy] for policy in offloading],
                    stated("vdnn2016", *(f"v-vm-{number}.{row}" for number in (3, 4, 5, 6))),
                    [fmean(savings(policy, which)) for policy in offloading],
                    percent_axis(f"reduction of {name} memory"),
                )
                for which, row, name in ((0, "avg", "average"), (1, "max", "maximum"))
            ),
        ),
        facts={
            "savings": "; ".join(
                f"{percent(fmean(savings(policy, 1)))} and {percent(fmean(savings(policy, 0)))} under "
                f"{POLICY_LABELS[policy]}"
                for policy in offloading
            ),
            "all_m": format_bytes(results[("vgg16", 128), "vdnn_all(m)"].metrics.feature_max_memory_bytes),
            "best": extremes(names, best),
            "failing": len(failing),
            "networks": len(names),
            "dyn_fits": dyn_fits,
            "spare": f"{format_bytes(abs(spare))} {'less' if spare >= 0 else 'more'}",
            "without_pool": format_bytes(without_pool.metrics.feature_max_memory_bytes),
        },
    )


def _drawn(result: PolicyResult) -> tuple[float, float]:
    """Mean and maximum as the paper draws them: of feature extraction under vDNN, of all that base allocates."""
    metrics = result.metrics
    if result.policy.startswith("base"):
        return float(metrics.max_memory_bytes), float(metrics.max_memory_bytes)
    return metrics.feature_step_mean_memory_bytes, float(metrics.feature_max_memory_bytes)
