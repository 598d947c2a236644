"""What decides Table 6 of Jin et al. (2018) beside the rules of the systems, and what it would be otherwise."""

from typing import Final

from vdnnsim.claims.layrub2018.reading import Reading
from vdnnsim.claims.layrub2018.runs import MXNET_CONTEXT_BYTES, Case, LayrubRuns
from vdnnsim.claims.layrub2018.tables import HYBRID, SYSTEMS
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import round_up
from vdnnsim.plan.operations import Allocate
from vdnnsim.policies.caffe_layers import WORKSPACE_LIMIT_BYTES
from vdnnsim.units import MIB

_STREAMS: Final = 3


def runtime_readings(runs: LayrubRuns) -> tuple[Reading, ...]:
    """Return the alternatives: how the driver cuts memory, what Caffe and MXNet hold of their own."""
    layrub, caffe_mid = Case("k40m", "resnet1517", 32), Case("k40m", "resnet50", 32)
    mxnet, small = Case("k40m", "resnet1172", 32), Case("titan_z", "resnet34", 32)
    convolutions = sum(layer.kind is LayerKind.CONV for layer in runs.bench(layrub).workload.graph.layers)
    own_context = runs.bench(small).server.gpu.context_bytes
    ideal, halves = "bytes of buffers are added up", "the driver's blocks have 1 MiB, not 2"
    answers = (
        (layrub, HYBRID, 11239, ideal, runs.pool_bytes(layrub, HYBRID, MemoryModel.IDEAL)),
        *(
            (case, HYBRID, paper, halves, _in_blocks(runs, case, HYBRID, MIB))
            for case, paper in ((layrub, 11239), (caffe_mid, 1805))
        ),
        (
            layrub,
            HYBRID,
            11239,
            "each CONV layer holds 8 MiB of workspace, Caffe's limit, for each of its three streams",
            runs.pool_bytes(layrub, HYBRID) + convolutions * _STREAMS * WORKSPACE_LIMIT_BYTES,
        ),
        (mxnet, "memonger", 11455, ideal, runs.pool_bytes(mxnet, "memonger", MemoryModel.IDEAL)),
        (
            mxnet,
            "memonger",
            11455,
            "each cudaMalloc asks for 32 bytes more, as MXNet's pool does since March 2017 (apache/mxnet#5276)",
            runs.pool_bytes(mxnet, "memonger", more_bytes=32),
        ),
        (
            small,
            "memonger",
            1554,
            "MXNet's context is as small as Caffe's",
            runs.pool_bytes(small, "memonger") + own_context - MXNET_CONTEXT_BYTES,
        ),
    )
    return tuple(
        Reading(
            "t-6",
            f"{case.network}, {SYSTEMS[policy]}: {question}",
            f"{paper} MB",
            f"{runs.memory(case, policy).runtime / MIB:.0f} MiB",
            _verdict(runs.memory(case, policy).runtime + pool_bytes - runs.pool_bytes(case, policy), paper * MIB),
        )
        for case, policy, paper, question, pool_bytes in answers
    )


def mxnet_without_memonger(runs: LayrubRuns) -> float:
    """Return what ResNet-34 (32) takes under MXNet alone, bytes: the one such figure of this card that others measured.

    It showed 2190 MB in December 2017 (K40m, CUDA 7.5, MXNet 0.11), on another card 2295 MB:
    https://github.com/apache/mxnet/issues/9024.
    """
    return runs.pool_bytes(Case("k40m", "resnet34", 32), "base(p)", MemoryModel.MXNET) + MXNET_CONTEXT_BYTES


def _in_blocks(runs: LayrubRuns, case: Case, policy: str, block_bytes: int) -> int:
    """Return what the driver hands out in blocks of another size where all buffers are held from beginning to end."""
    plan = runs.plan(case, policy)
    held = [plan.buffers[each.buffer].nbytes for each in plan.operations if isinstance(each, Allocate)]
    large = sum(round_up(nbytes, block_bytes) for nbytes in held if nbytes > block_bytes // 2)
    return large + round_up(sum(nbytes for nbytes in held if nbytes <= block_bytes // 2), block_bytes)


def _verdict(nbytes: float, paper_bytes: float) -> str:
    return f"{nbytes / MIB:.0f} MiB, {nbytes / paper_bytes - 1:+.0%}"
