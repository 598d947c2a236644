"""What other readings of Jin et al. (2018) would give: for each open question the number taken and its alternatives."""

from dataclasses import replace
from statistics import fmean
from typing import Final, NamedTuple

from reports.layrub2018.tables import HYBRID, SYSTEMS, by_case
from vdnnsim.claims.layrub2018.metrics import (
    STATED,
    at_paper_pace,
    map_reduction,
    overhead,
    runtime_reduction,
    two_nodes_speedup,
    weight_bytes,
)
from vdnnsim.claims.layrub2018.runs import MXNET_CONTEXT_BYTES, LayrubCase, LayrubRuns, place_in, pool_of
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.operations import Allocate
from vdnnsim.policies.caffe import WORKSPACE_LIMIT_BYTES
from vdnnsim.units import MIB

_STREAMS: Final = 3
_VDNN: Final = "vdnn_all(m)"
WELL_KNOWN: Final = (
    ("lenet", 64),
    ("cifar10_quick", 100),
    ("alexnet", 128),
    ("caffenet", 128),
    ("vgg_d_13conv", 64),
    ("googlenet", 128),
    ("resnet50", 32),
    ("wrn_28_10", 128),
    ("lstm_rnn", 64),
    ("lstm_cnn", 384),
)
"""The networks that 5.1 names, in the place of those of Fig. 11, with their batch sizes."""


class Alternative(NamedTuple):
    """Another reading of a claim beside the default: a row of `readings.csv`.

    Attributes:
        question: the other reading.
    """

    id: str
    question: str
    paper: str
    taken: str
    alternative: str


def compare_readings(runs: LayrubRuns) -> tuple[Alternative, ...]:
    """Return the alternatives, in the order of the claims."""
    return (*_maps(runs), *_runtime_memory(runs), *_overheads(runs), *_speeds(runs), *_two_nodes(runs))


def _maps(runs: LayrubRuns) -> tuple[Alternative, ...]:
    resnet152, resnet1001 = (LayrubCase("k40m", f"resnet{depth}", 32) for depth in (152, 1001))
    known = [LayrubCase("k40m", network, batch_size) for network, batch_size in WELL_KNOWN]
    all_maps = 1 - runs.maps_bytes(resnet1001, HYBRID) / runs.maps_bytes(resnet1001, "caffe")
    maps = fmean(map_reduction(runs, case, HYBRID) for case in known)
    runtime = fmean(runtime_reduction(runs, case, HYBRID, "caffe") for case in known)
    weights = (
        f"{runs.simulator(resnet152).workload.graph.parameters / 1e6:.1f} million",
        f"{weight_bytes(runs, resnet152) / MIB:.0f} MiB",
    )
    blobs = f"{map_reduction(runs, resnet1001, HYBRID):.1%}"
    normalized = "Caffe's normalized maps, which are no blobs, count as well"
    return (
        Alternative("l-2", "60.2 MB are bytes, not millions of weights", "60.2 MB", *weights),
        Alternative("l-5", normalized, "98.9%", blobs, f"{all_maps:.1%}"),
        Alternative("l-9", "the mean is of runtime memory", "58.2%", f"{maps:.1%}", f"{runtime:.1%}"),
    )


def _runtime_memory(runs: LayrubRuns) -> tuple[Alternative, ...]:
    """What decides Table 6 beside the rules of the systems: how the driver cuts memory, what frameworks hold."""
    layrub, middle, mxnet = (LayrubCase("k40m", f"resnet{depth}", 32) for depth in (1517, 50, 1172))
    small = LayrubCase("titan_z", "resnet34", 32)
    convolutions = sum(layer.kind is LayerKind.CONV for layer in runs.simulator(layrub).workload.graph.layers)
    workspaces = convolutions * _STREAMS * WORKSPACE_LIMIT_BYTES
    context = MXNET_CONTEXT_BYTES - runs.simulator(small).server.gpu.context_bytes
    ideal, halves = "bytes of buffers are added up", "the driver's blocks have 1 MiB, not 2"
    limit = "each CONV layer holds 8 MiB of workspace, Caffe's limit, for each of its three streams"
    more = "each cudaMalloc asks for 32 bytes more, as MXNet's pool does since March 2017 (apache/mxnet#5276)"
    small_context = "MXNet's context is as small as Caffe's"
    answers = (
        (layrub, HYBRID, 11239, ideal, pool_bytes(runs, layrub, HYBRID, MemoryModel.IDEAL)),
        (layrub, HYBRID, 11239, halves, _in_blocks(runs, layrub, HYBRID, MIB)),
        (middle, HYBRID, 1805, halves, _in_blocks(runs, middle, HYBRID, MIB)),
        (layrub, HYBRID, 11239, limit, pool_bytes(runs, layrub, HYBRID) + workspaces),
        (mxnet, "memonger", 11455, ideal, pool_bytes(runs, mxnet, "memonger", MemoryModel.IDEAL)),
        (mxnet, "memonger", 11455, more, pool_bytes(runs, mxnet, "memonger", more_bytes=32)),
        (small, "memonger", 1554, small_context, pool_bytes(runs, small, "memonger") - context),
    )
    return tuple(
        Alternative(
            "t-6",
            f"{case.network}, {SYSTEMS[policy]}: {question}",
            f"{paper} MB",
            f"{runs.memory(case, policy).runtime / MIB:.0f} MiB",
            f"{mib:.0f} MiB, {mib / paper - 1:+.0%}",
        )
        for case, policy, paper, question, taken in answers
        for mib in [(runs.memory(case, policy).runtime + taken - pool_bytes(runs, case, policy)) / MIB]
    )


def pool_bytes(
    runs: LayrubRuns, case: LayrubCase, policy: str, model: MemoryModel | None = None, *, more_bytes: int = 0
) -> int:
    """Return the bytes of the pool under another memory model than the system's, or with more bytes in every buffer."""
    plan = runs.plan(case, policy)
    buffers = tuple(replace(each, nbytes=each.nbytes + more_bytes) for each in plan.buffers)
    return place_in(runs.simulator(case), replace(plan, buffers=buffers), model or pool_of(policy)).pool_bytes


def mxnet_without_memonger(runs: LayrubRuns) -> float:
    """Return what ResNet-34 (32) takes under MXNet alone, bytes: the one such figure of this card that others measured.

    It showed 2190 MB in December 2017 (K40m, CUDA 7.5, MXNet 0.11), on another card 2295 MB:
    https://github.com/apache/mxnet/issues/9024.
    """
    return pool_bytes(runs, LayrubCase("k40m", "resnet34", 32), "base(p)", MemoryModel.MXNET) + MXNET_CONTEXT_BYTES


def _in_blocks(runs: LayrubRuns, case: LayrubCase, policy: str, block_bytes: int) -> int:
    """Return what the driver hands out in blocks of another size where all buffers are held from beginning to end."""
    plan = runs.plan(case, policy)
    held = [plan.buffers[each.buffer].nbytes for each in plan.operations if isinstance(each, Allocate)]
    large = sum(round_up(nbytes, block_bytes) for nbytes in held if nbytes > block_bytes // 2)
    return large + round_up(sum(nbytes for nbytes in held if nbytes <= block_bytes // 2), block_bytes)


def _overheads(runs: LayrubRuns) -> tuple[Alternative, ...]:
    cases = [LayrubCase("k40m", network, batch_size) for (network, batch_size), _ in by_case(STATED.table_5)]
    taken = fmean(overhead(runs, case, HYBRID, "caffe", paper_pace=True) for case in cases)
    one_pass = [at_paper_pace(runs, case, "caffe", passes={}) for case in cases]
    paced = [at_paper_pace(runs, case, "caffe") for case in cases]
    own = fmean(overhead(runs, case, HYBRID, "caffe") for case in cases)
    added = fmean(
        (runs.iteration_s(here, HYBRID) - runs.iteration_s(here, "caffe")) / runs.iteration_s(there, "caffe")
        for here, there in zip(cases, paced, strict=True)
    )
    passes = fmean(overhead(runs, case, HYBRID, "caffe") for case in one_pass)
    uncopied = fmean(_without_temporary_maps(runs, case) / runs.iteration_s(case, "caffe") - 1 for case in paced)
    alternatives = {
        "kernels take as long as they do here, not as Caffe took": own,
        "the seconds that are added at the pace of the kernels here, over those of the paper's Caffe": added,
        "an iteration of ResNet-34 and ResNet-50 is one pass": passes,
        "the temporary maps of batch normalizations are not copied": uncopied,
    }
    return tuple(
        Alternative("t-5.mean.layrub", question, "24.1%", f"{taken:.1%}", f"{alternative:.1%}")
        for question, alternative in alternatives.items()
    )


def _without_temporary_maps(runs: LayrubRuns, case: LayrubCase) -> float:
    plan = runs.plan(case, HYBRID)
    buffers = (replace(each, nbytes=0) if each.name.startswith("temporary maps of") else each for each in plan.buffers)
    return runs.replay(case, replace(plan, buffers=tuple(buffers))).iteration_s


def _speeds(runs: LayrubRuns) -> tuple[Alternative, ...]:
    titan_x, k40m = LayrubCase("titan_x_maxwell", "vgg16", 64), LayrubCase("k40m", "vgg_d_13conv", 64)
    kept = [1 / (1 + overhead(runs, k40m, HYBRID, "caffe", paper_pace=pace)) for pace in (False, True)]
    vdnn = [1 / (1 + overhead(runs, *each)) for each in ((titan_x, _VDNN, "base(p)"), (k40m, _VDNN, "caffe"))]
    over_caffe = "vDNN(m) is measured over Caffe on the K40M"
    return (
        Alternative("l-15.layrub", "kernels take as long as Caffe took", "83.0%", *(f"{each:.1%}" for each in kept)),
        Alternative("l-15.vdnn", over_caffe, "at most 50%", *(f"{each:.1%}" for each in vdnn)),
    )


def _two_nodes(runs: LayrubRuns) -> tuple[Alternative, ...]:
    question = "two nodes at the pace of the replay, whose kernels are faster than the paper's Caffe"
    alternatives = []
    for claim, ((network, batch_size), speedup) in zip(("l-17", "l-18", "l-19"), by_case(STATED.table_8), strict=True):
        case = LayrubCase("k40m_x2_ethernet", network, batch_size)
        taken, other = (two_nodes_speedup(runs, case, HYBRID, paper_pace=pace) for pace in (True, False))
        texts = f"{speedup:.2f}", f"{taken:.2f}", f"{other:.2f}"
        alternatives.append(Alternative(claim, f"{network}: {question}", *texts))
    return tuple(alternatives)
