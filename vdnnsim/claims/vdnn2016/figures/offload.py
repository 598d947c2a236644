"""Figures 12 and 15: what each policy offloads, and where the memory of very deep networks is."""

from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.row import listing
from vdnnsim.claims.vdnn2016.figures.figure import (
    POLICY_TINTS,
    PaperFigure,
    bytes_axis,
    case_names,
    extremes,
)
from vdnnsim.claims.vdnn2016.metrics import host_share
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VERY_DEEP, VdnnRuns
from vdnnsim.report.chart import Chart, Level, Panel, Series, Slot, Tint
from vdnnsim.units import format_bytes

_DEEP: tuple[NetworkBatch, ...] = (("vgg16", 32), *VERY_DEEP)


def figure_12(runs: VdnnRuns) -> PaperFigure:
    """What each policy offloads to pinned host memory."""
    names = case_names(CONVENTIONAL)
    policies = {"vdnn_all(p)": "all", "vdnn_conv(p)": "conv", "vdnn_dyn": "dyn"}
    results = {policy: [runs.result(*case, policy) for case in CONVENTIONAL] for policy in policies}
    sizes = {policy: [each.metrics.offloaded_bytes for each in row] for policy, row in results.items()}
    everything = sizes["vdnn_all(p)"]
    shares = [conv / both for conv, both in zip(sizes["vdnn_conv(p)"], everything, strict=True)]
    idle = [name for name, nbytes in zip(names, sizes["vdnn_dyn"], strict=True) if not nbytes]
    return PaperFigure(
        stem="figure12",
        name="Figure 12",
        caption="Size of the allocations offloaded to pinned host memory.",
        header=("network", "batch_size", "policy", "fits", "offloaded_bytes", "host_memory_bytes"),
        rows=tuple(
            (*case, policy, each.fits, each.metrics.offloaded_bytes, each.metrics.host_memory_bytes)
            for number, case in enumerate(CONVENTIONAL)
            for policy, each in ((policy, results[policy][number]) for policy in policies)
        ),
        chart=Chart(
            f"vDNN_all offloads up to {format_bytes(max(everything))}; vDNN_dyn leaves {len(idle)} of {len(names)} "
            "networks on the GPU",
            "Fig. 12: bytes offloaded in one iteration; the same under (m) and (p); * does not fit with (p)",
            (
                Panel(
                    names,
                    tuple(
                        Slot(
                            "",
                            ((Series(label, POLICY_TINTS[policy], tuple(map(float, sizes[policy]))),),),
                            tuple(not each.fits for each in results[policy]),
                        )
                        for policy, label in policies.items()
                    ),
                    bytes_axis("offloaded to the host", everything),
                ),
            ),
        ),
        paper_says=("Offloads reach up to 16 GB under vDNN_all for VGG-16 (256) (V-A).",),
        replay_shows=(
            f"vDNN_all offloads {extremes(names, everything, format_bytes)}.",
            f"vDNN_conv offloads {extremes(names, shares)} of that.",
            f"vDNN_dyn offloads nothing for {listing(idle)}.",
        ),
        differs=(
            (
                "What the static policies offload follows from the shapes of the network alone: the X of each "
                "feature-extraction or CONV layer, once. What vDNN_dyn offloads depends on which of its passes first "
                "fits, hence on the workspaces that the cost model predicts."
            ),
        ),
    )


def figure_15(runs: VdnnRuns) -> PaperFigure:
    """GPU and host memory of very deep networks."""
    names = case_names(_DEEP)
    dyn = [runs.result(*case, "vdnn_dyn") for case in _DEEP]
    base = [runs.oracle(*case) for case in _DEEP]
    gpu = [each.metrics.max_memory_bytes for each in dyn]
    host = [each.metrics.host_memory_bytes for each in dyn]
    before = [each.metrics.max_memory_bytes for each in base]
    of_dyn = [host_share(runs, case, "vdnn_dyn") for case in _DEEP]
    speeds = [each.feature_performance_ratio for each in dyn]
    feature = [each.metrics.feature_max_memory_bytes for each in dyn]
    return PaperFigure(
        stem="figure15",
        name="Figure 15",
        caption="CPU and GPU memory of VGG-style, very deep networks (batch 32) under vDNN_dyn and the baseline.",
        header=(
            "network",
            "batch_size",
            "policy",
            "settled_on",
            "fits",
            "gpu_max_memory_bytes",
            "gpu_feature_max_memory_bytes",
            "host_memory_bytes",
            "host_fraction",
            "feature_performance_ratio",
        ),
        rows=tuple(
            (
                *case,
                policy,
                each.algorithms,
                each.fits,
                each.metrics.max_memory_bytes,
                each.metrics.feature_max_memory_bytes,
                each.metrics.host_memory_bytes,
                host_share(runs, case, policy),
                each.feature_performance_ratio,
            )
            for number, case in enumerate(_DEEP)
            for policy, each in (("vdnn_dyn", dyn[number]), ("base(p)", base[number]))
        ),
        chart=Chart(
            f"vDNN_dyn holds {names[-1]} in {format_bytes(gpu[-1])} of GPU memory instead of "
            f"{format_bytes(before[-1])}",
            "Fig. 15: most GPU memory in use, and pinned CPU memory, whole network; * does not fit",
            (
                Panel(
                    names,
                    tuple(
                        Slot(label, ((Series(f"GPU memory, {label}", tint, sizes),),), tuple(not r.fits for r in found))
                        for label, tint, sizes, found in (
                            ("dyn", Tint.GPU_MEMORY, tuple(map(float, gpu)), dyn),
                            ("base", Tint.BASE_P, tuple(map(float, before)), base),
                        )
                    ),
                    bytes_axis("GPU memory", before),
                    level=Level(f"capacity {format_bytes(runs.server.gpu.memory_bytes)}", runs.server.gpu.memory_bytes),
                ),
                Panel(
                    names,
                    (
                        Slot(
                            "dyn",
                            ((Series("CPU memory, dyn", Tint.HOST_MEMORY, tuple(map(float, host))),),),
                            tuple(False for _ in names),
                        ),
                    ),
                    bytes_axis("pinned CPU memory", before),
                ),
            ),
        ),
        paper_says=(
            "From 16 to 416 CONV layers the baseline grows 14 times, from 4.9 GB to 67.1 GB (V-E).",
            (
                "vDNN_dyn uses up to 4.2 GB of GPU memory; 81 % to 92 % of all memory resides in CPU memory, without "
                "noticeable loss of performance (V-E)."
            ),
        ),
        replay_shows=(
            (
                f"The baseline grows {before[-1] / before[0]:.1f} times, from {format_bytes(before[0])} to "
                f"{format_bytes(before[-1])}."
            ),
            (
                f"vDNN_dyn uses {extremes(names, gpu, format_bytes)} of GPU memory, of which feature extraction has at "
                f"most {format_bytes(max(feature))}; CPU memory holds {extremes(names[1:], of_dyn[1:])} of the memory "
                "of the very deep networks."
            ),
            f"vDNN_dyn runs at {extremes(names, speeds)} of the speed of the oracular baseline.",
        ),
        differs=(
            (
                "The paper's two numbers contradict each other: 4.2 GB of the 67.1 GB of the deepest network would "
                "leave more in CPU memory than the share it states. W and dW of the added layers stay on the GPU and "
                "grow with depth, so that GPU memory cannot be constant."
            ),
        ),
    )
