"""The paper's numbers, computed from plans and replays: bytes, seconds, shares between 0 and 1, yes or no."""

from dataclasses import replace
from statistics import fmean

from vdnnsim.claims.layrub2018.pace import at_one_node_pace, at_paper_pace
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns
from vdnnsim.cost.transfer import copy_s
from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.step import Role
from vdnnsim.hardware.copies import Direction
from vdnnsim.plans.operations import Compute


def parameters(runs: LayrubRuns, case: LayrubCase) -> float:
    """How many weights a network has."""
    return runs.simulator(case).workload.graph.parameters


def weight_bytes(runs: LayrubRuns, case: LayrubCase) -> float:
    """What its weights take, once."""
    return parameters(runs, case) * runs.simulator(case).workload.element_type.nbytes


def map_reduction(runs: LayrubRuns, case: LayrubCase, policy: str) -> float:
    """By how much activations and gradients take less than Caffe's blobs (5.2).

    Regions are counted as they are. Where maps are not offloaded, normalized maps, which are no blobs, are left out on
    both sides.
    """
    inside = runs.inside_bytes(case) if policy == "layrub_intra" else 0
    return 1 - (runs.maps_bytes(case, policy) - inside) / runs.blob_bytes(case)


def runtime_reduction(runs: LayrubRuns, case: LayrubCase, policy: str, baseline: str) -> float:
    """By how much all memory that nvidia-smi shows is less than under another policy (5.3.1)."""
    return 1 - runs.memory(case, policy).runtime / runs.memory(case, baseline).runtime


def overhead(runs: LayrubRuns, case: LayrubCase, policy: str, baseline: str, *, paper_pace: bool = False) -> float:
    """Extra time of an iteration, at the paper's pace (Table 5) or at that of the kernels here."""
    case = at_paper_pace(runs, case, baseline) if paper_pace else case
    return runs.iteration_s(case, policy) / runs.iteration_s(case, baseline) - 1


def record_share(runs: LayrubRuns, case: LayrubCase, policy: str) -> float:
    """Bytes of the records of rectifiers over those of the maps that they stand for (4.2)."""
    plan = runs.plan(case, policy)
    layers = plan.workload.graph.layers
    records = {
        operand.memory: layers[each.layer].output
        for each in plan.operations
        if isinstance(each, Compute) and isinstance(layers[each.layer].operator, Activation)
        for operand in each.operands
        if operand.role is Role.STATISTICS
    }
    maps_bytes = sum(plan.workload.map_bytes(index) for index in records.values())
    return sum(plan.buffers[buffer].nbytes for buffer in records) / maps_bytes


def barrier_share(runs: LayrubRuns, case: LayrubCase, policy: str) -> float:
    """Time lost by barriers over the time of the kernels of backward that they separate (4.3)."""
    costs = runs.simulator(case).costs
    kernels = [each for each in runs.plan(case, policy).operations if isinstance(each, Compute)]
    separated = {each.layer for each in kernels if each.barrier_s}
    phases = (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)
    seconds = [
        costs.find(each.layer, each.phase, each.algorithm).seconds
        for each in kernels
        if each.layer in separated and each.phase in phases
    ]
    return sum(each.barrier_s for each in kernels) / sum(seconds)


def migration_speedup(runs: LayrubRuns, case: LayrubCase, policy: str) -> float:
    """Time to compute Y again over the time to load it back, mean over CONV and FC layers (6)."""
    simulator = runs.simulator(case)
    forward = [
        each for each in runs.plan(case, policy).operations if isinstance(each, Compute) and each.phase is Phase.FORWARD
    ]
    ratios = []
    for each in forward:
        layer = simulator.workload.graph.layers[each.layer]
        if layer.kind in (LayerKind.CONV, LayerKind.FC):
            load_s = copy_s(simulator.server.link, Direction.H2D, simulator.workload.map_bytes(layer.output))
            ratios.append(simulator.costs.find(each.layer, each.phase, each.algorithm).seconds / load_s)
    return fmean(ratios)


def two_nodes_speedup(runs: LayrubRuns, case: LayrubCase, policy: str, *, paper_pace: bool) -> float:
    """Images per second of two nodes over one (Table 8), of a case on a machine of two nodes.

    Each layer's weight gradients go around a ring of two over the network as soon as they are there: each node sends
    and receives as many bytes as a layer's dW has. At the paper's pace, kernels take as much longer as brings an
    iteration on one node to the paper's time.
    """
    case = at_one_node_pace(runs, case, policy) if paper_pace else case
    return 2 * runs.iteration_s(case, policy) / runs.iteration_s(replace(case, gpus=2), policy)


def epoch_change(runs: LayrubRuns, case: LayrubCase, batch_size: int, policy: str) -> float:
    """By how much an epoch takes longer than with another batch size (Table 7)."""
    other = LayrubCase(case.hardware, case.network, batch_size)
    per_image_s = runs.iteration_s(case, policy) / case.batch_size
    return per_image_s / (runs.iteration_s(other, policy) / batch_size) - 1
