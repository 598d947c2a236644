"""Figure 11: mean and maximum GPU memory of each policy, and what it saves."""

from statistics import fmean

from vdnnsim.analysis.columns import Row
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.vdnn2016.figures.figure import (
    POLICY_LABELS,
    PaperFigure,
    beside_the_paper,
    case_names,
    extremes,
    percent_axis,
    stated,
    whole_percent,
)
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VdnnRuns
from vdnnsim.report.chart import Chart
from vdnnsim.report.scale import percent
from vdnnsim.units import format_bytes


def figure_11(runs: VdnnRuns) -> PaperFigure:
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
    return PaperFigure(
        stem="figure11",
        name="Figure 11",
        caption="Savings in average and maximum memory, mean of the six networks, as the paper states them and as "
        "the replay has them; figure11.csv has every network, and whether it fits.",
        header=(
            "network",
            "batch_size",
            "policy",
            "fits",
            "feature_step_mean_memory_bytes",
            "feature_max_memory_bytes",
            "whole_mean_memory_bytes",
            "whole_max_memory_bytes",
            "mean_savings_of_baseline",
            "max_savings_of_baseline",
            "whole_mean_savings",
            "whole_max_savings",
        ),
        rows=tuple(
            _row_11(case, policy, results[case, policy], whole[case])
            for case in CONVENTIONAL
            for policy in POLICY_LABELS
        ),
        chart=Chart(
            f"vDNN_all(m) cuts average memory by {whole_percent(fmean(savings('vdnn_all(m)', 0)))}; "
            f"vDNN_dyn fits {dyn_fits} of {len(names)} networks, base(p) {len(names) - len(failing)}",
            "Fig. 11: what feature extraction takes less than the whole base(p), mean of six networks; the text of the "
            "paper beside the replay",
            tuple(
                beside_the_paper(
                    [POLICY_LABELS[policy] for policy in offloading],
                    stated(*(f"v-vm-{number}.{row}" for number in (3, 4, 5, 6))),
                    [fmean(savings(policy, which)) for policy in offloading],
                    percent_axis(f"reduction of {name} memory"),
                )
                for which, row, name in ((0, "avg", "average"), (1, "max", "maximum"))
            ),
        ),
        paper_says=(
            (
                "vDNN_all(m) reduces maximum and average memory by 73 % and 93 % on average over the six networks, "
                "vDNN_all(p) by 64 % and 90 %, vDNN_conv(p) by 52 % and 76 %, vDNN_dyn by 49 % and 69 % (V-A)."
            ),
            (
                "VGG-16 (128) under vDNN_all(m) uses at most 4.8 GB (V-A). Average memory falls by up to 89 % for "
                "AlexNet, 91 % for OverFeat and 95 % for GoogLeNet (abstract)."
            ),
            "The baseline cannot train VGG-16 with batch 128 and 256 (V-A).",
        ),
        replay_shows=(
            "Maximum and average memory fall, on average over the six networks, by "
            + "; ".join(
                f"{percent(fmean(savings(policy, 1)))} and {percent(fmean(savings(policy, 0)))} under "
                f"{POLICY_LABELS[policy]}"
                for policy in offloading
            )
            + ".",
            (
                "VGG-16 (128) under all(m) uses at most "
                f"{format_bytes(results[('vgg16', 128), 'vdnn_all(m)'].metrics.feature_max_memory_bytes)} in feature "
                "extraction."
            ),
            f"The best average saving of any policy is {extremes(names, best)}.",
            (
                f"base(p) does not fit {len(failing)} of the {len(names)} networks; vDNN_dyn fits {dyn_fits}. For "
                f"VGG-16 (128), which the paper trains under base(m) (V-D), that takes {format_bytes(abs(spare))} "
                f"{'less' if spare >= 0 else 'more'} than there is."
            ),
        ),
        differs=(
            (
                "The numbers of the paper fit together only if vDNN's memory is that of the feature-extraction layers "
                "while the baseline is the whole network. The CSV has whole against whole as well, which is what a "
                "user sees: the classifier's weights and their gradients stay on the GPU in any case."
            ),
            (
                "The average is over layer steps, each feature-extraction layer once in forward and once in backward; "
                "weighting by time gives another number, which the CSV has too."
            ),
            (
                "The search of Fig. 10 as printed prefetches during POOL too, which raises the maximum of VGG-16 "
                "(128) under all(m) above the paper's 4.8 GB; with that left out (`prefetch_search: "
                f"fig10_without_pool`) it is {format_bytes(without_pool.metrics.feature_max_memory_bytes)}."
            ),
        ),
    )


def _drawn(result: PolicyResult) -> tuple[float, float]:
    """Mean and maximum as the paper draws them: of feature extraction under vDNN, of all that base allocates."""
    metrics = result.metrics
    if result.policy.startswith("base"):
        return float(metrics.max_memory_bytes), float(metrics.max_memory_bytes)
    return metrics.feature_step_mean_memory_bytes, float(metrics.feature_max_memory_bytes)


def _row_11(case: NetworkBatch, policy: str, result: PolicyResult, whole: int) -> Row:
    metrics, (mean_bytes, max_bytes) = result.metrics, _drawn(result)
    return (
        *case,
        policy,
        result.fits,
        metrics.feature_step_mean_memory_bytes,
        metrics.feature_max_memory_bytes,
        metrics.mean_memory_bytes,
        metrics.max_memory_bytes,
        1 - mean_bytes / whole,
        1 - max_bytes / whole,
        1 - metrics.mean_memory_bytes / whole,
        1 - metrics.max_memory_bytes / whole,
    )
