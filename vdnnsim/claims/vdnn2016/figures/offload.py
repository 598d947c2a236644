"""Figures 12 and 15: what each policy offloads, and where the memory of very deep networks is."""

from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.report import SimulatedFigure
from vdnnsim.claims.vdnn2016.figures.figure import POLICY_TINTS, bytes_axis, case_names, extremes, result_columns
from vdnnsim.claims.vdnn2016.metrics import host_share
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VERY_DEEP, VdnnRuns
from vdnnsim.files.messages import listed
from vdnnsim.report.chart import Chart, Level, Panel, Slot, Tint
from vdnnsim.units import format_bytes

_DEEP: tuple[NetworkBatch, ...] = (("vgg16", 32), *VERY_DEEP)


def figure_12(runs: VdnnRuns) -> SimulatedFigure:
    """What each policy offloads to pinned host memory."""
    names = case_names(CONVENTIONAL)
    policies = {"vdnn_all(p)": "all", "vdnn_conv(p)": "conv", "vdnn_dyn": "dyn"}
    results = {policy: [runs.result(*case, policy) for case in CONVENTIONAL] for policy in policies}
    sizes = {policy: [each.metrics.offloaded_bytes for each in row] for policy, row in results.items()}
    everything = sizes["vdnn_all(p)"]
    shares = [conv / both for conv, both in zip(sizes["vdnn_conv(p)"], everything, strict=True)]
    idle = [name for name, nbytes in zip(names, sizes["vdnn_dyn"], strict=True) if not nbytes]
    slots = [
        Slot.of(label, POLICY_TINTS[policy], sizes[policy], [each.fits for each in results[policy]])
        for policy, label in policies.items()
    ]
    return SimulatedFigure(
        stem="figure12",
        columns=result_columns(
            [(case, policy, results[policy][n]) for n, case in enumerate(CONVENTIONAL) for policy in policies],
            "offloaded_bytes",
            "host_memory_bytes",
        ),
        chart=Chart(
            f"vDNN_all offloads up to {format_bytes(max(everything))}; vDNN_dyn leaves {len(idle)} of {len(names)} "
            "networks on the GPU",
            "Fig. 12: bytes offloaded in one iteration; the same under (m) and (p); * does not fit with (p)",
            (Panel(names, tuple(slots), bytes_axis("offloaded to the host", everything)),),
        ),
        facts={
            "all": extremes(names, everything, format_bytes),
            "conv": extremes(names, shares),
            "idle": listed(idle) or "none",
        },
    )


def figure_15(runs: VdnnRuns) -> SimulatedFigure:
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
    pairs = [
        (case, policy, each)
        for number, case in enumerate(_DEEP)
        for policy, each in (("vdnn_dyn", dyn[number]), ("base(p)", base[number]))
    ]
    on_gpu = (
        Slot.of("GPU memory, dyn", Tint.GPU_MEMORY, gpu, [each.fits for each in dyn]),
        Slot.of("GPU memory, base", Tint.BASE_P, before, [each.fits for each in base]),
    )
    on_host = (Slot.of("CPU memory, dyn", Tint.HOST_MEMORY, host),)
    capacity = runs.server.gpu.memory_bytes
    level = Level(f"capacity {format_bytes(capacity)}", capacity)
    return SimulatedFigure(
        stem="figure15",
        columns={
            **result_columns(pairs),
            "settled_on": [each.algorithms for _, _, each in pairs],
            "gpu_max_memory_bytes": [each.metrics.max_memory_bytes for _, _, each in pairs],
            "gpu_feature_max_memory_bytes": [each.metrics.feature_max_memory_bytes for _, _, each in pairs],
            "host_memory_bytes": [each.metrics.host_memory_bytes for _, _, each in pairs],
            "host_fraction": [host_share(runs, case, policy) for case, policy, _ in pairs],
            "feature_performance_ratio": [each.feature_performance_ratio for _, _, each in pairs],
        },
        chart=Chart(
            f"vDNN_dyn holds {names[-1]} in {format_bytes(gpu[-1])} of GPU memory instead of "
            f"{format_bytes(before[-1])}",
            "Fig. 15: most GPU memory in use, and pinned CPU memory, whole network; * does not fit",
            (
                Panel(names, on_gpu, bytes_axis("GPU memory", before), level=level),
                Panel(names, on_host, bytes_axis("pinned CPU memory", before)),
            ),
        ),
        facts={
            "grows": before[-1] / before[0],
            "first": format_bytes(before[0]),
            "last": format_bytes(before[-1]),
            "gpu": extremes(names, gpu, format_bytes),
            "feature": format_bytes(max(feature)),
            "host": extremes(names[1:], of_dyn[1:]),
            "speeds": extremes(names, speeds),
        },
    )
