"""Which rows do not compute quite what the others do: parts of a batch that are normalized apart."""

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.samples import Sample, sample_of
from vdnnsim.dnn.workload import Mode
from vdnnsim.plan.operations import Compute


def part_statistics(result: ScenarioResult) -> tuple[str, ...]:
    """Return a line for each policy that trains in parts a network which normalizes over the batch."""
    if result.workload.mode is not Mode.TRAINING:
        return ()
    rows = ((each.policy, _normalized_images(result, each)) for each in result.slowest)
    size, sample = result.workload.batch_size, sample_of(result.workload.graph)
    return tuple(
        f"{policy}: batch normalization takes its statistics over parts of {_several(sample, images)}, not over all "
        f"{size}: what is trained is not quite what the other rows train"
        for policy, images in rows
        if images
    )


def _normalized_images(result: ScenarioResult, row: PolicyResult) -> int:
    """Return over how many images of a part the batch is normalized; 0 where that is all of them, or is not done."""
    layers = result.workload.graph.layers
    for each in row.trace.plan.operations:
        if isinstance(each, Compute) and layers[each.layer].kind is LayerKind.BN:
            images = row.trace.plan.workload.part_size
            return images if images < result.workload.batch_size else 0
    return 0


def _several(sample: Sample, count: int) -> str:
    return f"1 {sample.name}" if count == 1 else f"{count} {sample.names}"
