"""Collectives as nccl-tests measured them on machines of others, predicted from profiles that nothing was fitted in.

The rows of nccl_tests.csv are out of place, one for each size of more than 1 MiB. They must come within 15 %; misses
are stated, with their worst error.

Sources:
    h100_8     8 H100 SXM, one process: single-node guide to nccl-tests with -b 256M -e 2G, a public GitHub repository
    h100_16    16 H100 SXM on two hosts with 8 cards of 400 Gbit/s each: the two-node guide of the same repository
    h100_2     2 of 8 H100 SXM: NCCL Guide for DigitalOcean Bare Metal Machines, a public GitHub repository
    a100_8     8 A100 SXM of 40 GB, one process: a test of Galvatron's hardware profiler, with the output of a run
    a100_16    16 A100 SXM on two hosts with 8 cards of 200 Gbit/s each: a log of nccl-allreduce-job1 on Kubernetes
    a100_send  sendrecv_perf on 8 A100 SXM: https://github.com/li-plus/playground, cuda/nccl.md
    rtx4090_8  8 RTX 4090 on two EPYC 7542 without peer to peer: a guide to unlock it, a public GitHub repository
"""

import csv
from pathlib import Path

import pytest

from tests.machines import shipped_server
from vdnnsim.cost.collectives import Cluster
from vdnnsim.dnn.collective import Collective, CollectiveKind

_WITHIN = 0.15
ROWS = list(csv.DictReader((Path(__file__).parent / "nccl_tests.csv").read_text(encoding="utf-8").splitlines()))
SOURCES = list(dict.fromkeys(row["source"] for row in ROWS))


def errors(source: str) -> dict[int, float]:
    """Return by size in MiB how far the predictions of a source are off."""
    found = {}
    for row in ROWS:
        if row["source"] == source:
            topology = shipped_server(row["machine"]).topology
            assert topology is not None
            ranks, nbytes = int(row["ranks"]), int(row["nbytes"])
            collective = Collective(CollectiveKind(row["kind"]), nbytes, "float32", ranks)
            timed = Cluster(topology, ranks).timed(collective, (0,))
            found[nbytes >> 20] = timed.seconds * 1e6 / float(row["time_us"]) - 1
    return found


@pytest.mark.parametrize("source", ["h100_8", "h100_16", "rtx4090_8"])
def test_collectives_of_three_machines_are_met(source: str) -> None:
    """The worst: 6 % for eight H100, 12 % for sixteen at 256 MiB, 15.0 % for eight RTX 4090 at 2 MiB and else 9 %."""
    assert max(map(abs, errors(source).values())) <= _WITHIN


@pytest.mark.parametrize(
    ("source", "from_mib", "worst_below"),
    [
        # NCCL's constants have collectives of a few MB over NVLink too fast, and more so one process with eight GPUs.
        ("h100_2", 64, -0.32),
        ("a100_16", 64, -0.29),
        ("a100_8", 256, -0.48),
        # Its sends use fewer channels than its rings.
        ("a100_send", 2048, -0.53),
    ],
)
def test_collectives_that_are_missed(source: str, from_mib: int, worst_below: float) -> None:
    """From a size on they are within 15 %, below it up to half too fast, and never too slow."""
    found = errors(source)
    assert all(abs(error) <= _WITHIN for mib, error in found.items() if mib >= from_mib)
    missed = [error for mib, error in found.items() if mib < from_mib]
    assert min(missed) == pytest.approx(worst_below, abs=0.01)
    assert max(missed) < 0


def test_every_source_is_judged() -> None:
    assert set(SOURCES) == {"h100_8", "h100_16", "rtx4090_8", "h100_2", "a100_16", "a100_8", "a100_send"}
