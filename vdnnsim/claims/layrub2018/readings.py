"""What other readings of Jin et al. (2018) would give: for each open question the number taken and its alternatives."""

from statistics import fmean
from typing import Final

from vdnnsim.claims.layrub2018.metrics import map_reduction, runtime_reduction, weight_bytes
from vdnnsim.claims.layrub2018.reading import Reading
from vdnnsim.claims.layrub2018.runs import Case, LayrubRuns
from vdnnsim.claims.layrub2018.runtime_readings import runtime_readings
from vdnnsim.claims.layrub2018.tables import HYBRID
from vdnnsim.claims.layrub2018.time_readings import time_readings
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


def compare_readings(runs: LayrubRuns) -> tuple[Reading, ...]:
    """Return the alternatives, in the order of the claims."""
    return (*_memory_readings(runs), *runtime_readings(runs), *time_readings(runs))


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
