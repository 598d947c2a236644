"""What other readings of Jin et al. (2018) would give: for each open question the number taken and its alternatives."""

from dataclasses import dataclass
from statistics import fmean
from typing import Final

from vdnnsim.claims.layrub2018.metrics import (
    map_reduction,
    overhead,
    runtime_reduction,
    two_nodes_speedup,
    weight_bytes,
)
from vdnnsim.claims.layrub2018.pace import TABLE_5
from vdnnsim.claims.layrub2018.runs import MXNET_CONTEXT_BYTES, Case, LayrubRuns
from vdnnsim.claims.layrub2018.tables import HYBRID, SYSTEMS
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.caffe_layers import WORKSPACE_LIMIT_BYTES
from vdnnsim.units import MIB

COLUMNS: Final = ("id", "question", "paper", "taken", "alternative")
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
_STREAMS = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """One alternative to how a claim is read.

    Attributes:
        id: the claim.
        question: what is read otherwise.
        paper, taken, alternative: the numbers as text.
    """

    id: str
    question: str
    paper: str
    taken: str
    alternative: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of readings.csv."""
        return self.id, self.question, self.paper, self.taken, self.alternative


def compare_readings(runs: LayrubRuns) -> tuple[Reading, ...]:
    """Return the alternatives, in the order of the claims."""
    return (*_memory_readings(runs), *_runtime_readings(runs), *_time_readings(runs))


def _memory_readings(runs: LayrubRuns) -> tuple[Reading, ...]:
    resnet152, resnet1001 = (Case("k40m", f"resnet{depth}", 32) for depth in (152, 1001))
    known = [Case("k40m", network, batch_size) for network, batch_size in WELL_KNOWN]
    all_maps = 1 - runs.memory(resnet1001, HYBRID).maps / runs.memory(resnet1001, "caffe").maps
    maps = fmean(map_reduction(runs, case, HYBRID) for case in known)
    runtime = fmean(runtime_reduction(runs, case, HYBRID, "caffe") for case in known)
    return (
        Reading(
            "l-2",
            "60.2 MB are bytes, not millions of weights",
            "60.2 MB",
            f"{runs.bench(resnet152).workload.graph.parameters / 1e6:.1f} million",
            f"{weight_bytes(runs, resnet152) / MIB:.0f} MiB",
        ),
        Reading(
            "l-5",
            "Caffe's normalized maps, which are no blobs, count as well",
            "98.9%",
            f"{map_reduction(runs, resnet1001, HYBRID):.1%}",
            f"{all_maps:.1%}",
        ),
        Reading("l-9", "the mean is of runtime memory", "58.2%", f"{maps:.1%}", f"{runtime:.1%}"),
    )


def _runtime_readings(runs: LayrubRuns) -> tuple[Reading, ...]:
    layrub, mxnet = Case("k40m", "resnet1517", 32), Case("k40m", "resnet1172", 32)
    small = Case("titan_z", "resnet34", 32)
    convolutions = sum(layer.kind is LayerKind.CONV for layer in runs.bench(layrub).workload.graph.layers)
    workspaces = convolutions * _STREAMS * WORKSPACE_LIMIT_BYTES
    own_context = runs.bench(small).server.gpu.context_bytes
    added = "bytes of buffers are added up"
    answers = (
        (layrub, HYBRID, 11239, added, runs.pool_bytes(layrub, HYBRID, MemoryModel.IDEAL)),
        (
            layrub,
            HYBRID,
            11239,
            "each CONV layer holds 8 MiB of workspace, Caffe's limit, for each of its three streams",
            runs.pool_bytes(layrub, HYBRID) + workspaces,
        ),
        (
            mxnet,
            "memonger",
            11455,
            "bytes of buffers are added up",
            runs.pool_bytes(mxnet, "memonger", MemoryModel.IDEAL),
        ),
        (
            mxnet,
            "memonger",
            11455,
            "each cudaMalloc asks for 32 bytes more, as MXNet's pool does since a version that is not known",
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
            f"{(runs.memory(case, policy).runtime + pool_bytes - runs.pool_bytes(case, policy)) / MIB:.0f} MiB",
        )
        for case, policy, paper, question, pool_bytes in answers
    )


def _time_readings(runs: LayrubRuns) -> tuple[Reading, ...]:
    vgg16 = Case("titan_x_maxwell", "vgg16", 64)
    on_k40m = Case("k40m", "vgg_d_13conv", 64)
    own, over_caffe = (
        1 / (1 + overhead(runs, case, "vdnn_all(m)", base)) for case, base in ((vgg16, "base(p)"), (on_k40m, "caffe"))
    )
    cases = [Case("k40m", network, batch_size) for network, batch_size in TABLE_5]
    at_paper_pace, at_own_pace = (
        fmean(overhead(runs, case, HYBRID, "caffe", paper_pace=pace) for case in cases) for pace in (True, False)
    )
    kept = [1 / (1 + overhead(runs, on_k40m, HYBRID, "caffe", paper_pace=pace)) for pace in (False, True)]
    return (
        Reading(
            "t-5.mean.layrub",
            "kernels take as long as they do here, not as Caffe took",
            "24.1%",
            f"{at_paper_pace:.1%}",
            f"{at_own_pace:.1%}",
        ),
        Reading("l-15.layrub", "kernels take as long as Caffe took", "83.0%", *(f"{share:.1%}" for share in kept)),
        Reading(
            "l-15.vdnn", "vDNN(m) is measured over Caffe on the K40M", "at most 50%", f"{own:.1%}", f"{over_caffe:.1%}"
        ),
        *(
            Reading(
                claim,
                f"{network}: two nodes at the pace of the replay, whose kernels are faster than the paper's Caffe",
                f"{speedup:.2f}",
                *(
                    f"{two_nodes_speedup(runs, Case('k40m', network, batch_size), HYBRID, paper_pace=pace):.2f}"
                    for pace in (True, False)
                ),
            )
            for claim, network, batch_size, speedup in (
                ("l-17", "alexnet", 256, 1.98),
                ("l-18", "resnet50", 32, 1.98),
                ("l-19", "resnet1001", 32, 1.97),
            )
        ),
    )
