"""The machine of one of several ranks: GPUs for all, and NCCL's buffers, 9,633,792 B a channel."""

from dataclasses import replace

import msgspec
import pytest

from tests.captured_ranks import sharded
from tests.machines import shipped_server
from tests.refusals import refusal
from vdnnsim.cost.collectives import Cluster
from vdnnsim.cost.ranks import cluster_of, machine_of_rank
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.errors import ProfileError
from vdnnsim.memory.process import nccl_bytes

CHANNEL = 524_288 + 4_915_200 + 4_194_304


def of_ranks(ranks: int, *others: Collective) -> CapturedStep:
    """Return a step whose collectives are of all ranks, and of others."""
    step = sharded()
    mine = iter(others)
    operations = [
        msgspec.structs.replace(
            each, collective=next(mine, None) or msgspec.structs.replace(each.collective, ranks=ranks)
        )
        if each.collective is not None
        else each
        for each in step.operations
    ]
    return msgspec.structs.replace(step, ranks=ranks, operations=tuple(operations))


def test_nccl_takes_a_buffer_of_each_protocol_for_every_channel() -> None:
    assert nccl_bytes(24) == 24 * CHANNEL


@pytest.mark.parametrize(
    ("name", "ranks", "stride", "channels"),
    [
        # 24 over NVSwitch, two for each of eight cards, or of the one card of each host.
        *(("h100_x8", 8, 1, 24), ("h100_x8", 4, 2, 24), ("h100_x8", 16, 1, 16), ("h100_x8", 4, 8, 2)),
        # Two for each of the four rings of a cube mesh, and for the ring through the tree.
        *(("dgx1_p100", 8, 1, 8), ("rtx_4090_x8", 8, 1, 2), ("rtx_4090_x8", 2, 4, 2)),
    ],
)
def test_channels_of_a_group(name: str, ranks: int, stride: int, channels: int) -> None:
    topology = shipped_server(name).topology
    assert topology is not None
    collective = Collective(CollectiveKind.ALL_GATHER, 1, "float32", ranks, stride)
    assert Cluster(topology, 32 if topology.cards else 8).channels(collective) == channels


def test_each_group_of_a_rank_has_buffers_of_its_own() -> None:
    """24 channels of eight ranks, and 24 of each other one; sends are left out. All else of the machine stays."""
    machine = shipped_server("h100_x8")
    pair = Collective(CollectiveKind.ALL_REDUCE, 16, "float32", 2)
    send = Collective(CollectiveKind.SEND, 16, "float32", 2, 4)
    found = machine_of_rank("h100_x8.yaml", machine, of_ranks(8, pair, send))
    assert found.gpu.context_bytes == machine.gpu.context_bytes + 48 * CHANNEL
    assert replace(found, gpu=machine.gpu) == machine
    assert machine_of_rank("rtx_4090.yaml", shipped_server("rtx_4090"), sharded()) == shipped_server("rtx_4090")


def test_a_cluster_has_as_many_hosts_as_it_says() -> None:
    """Three hosts of eight GPUs are 24 ranks; a server that states none is as many as ranks need."""
    cluster = replace(shipped_server("h100_x8"), hosts=3)
    assert cluster_of("three.yaml", cluster, 24).ranks == 24
    found = refusal(ProfileError, cluster_of, "three.yaml", cluster, 32)
    assert found == "three.yaml: has 3 hosts of 8 GPUs, expected at most 24 ranks, found 32"
    assert cluster_of("h100_x8.yaml", shipped_server("h100_x8"), 32).ranks == 32


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("rtx_4090", 2, "rtx_4090.yaml: has one GPU, expected 2 for so many ranks"),
        ("rtx_4090", 16, "rtx_4090.yaml: has one GPU, expected 16 for so many ranks; rtx_4090_x8 has 8 GPUs and no"),
        ("h100_sxm", 16, "h100_sxm.yaml: has one GPU, expected 16 for so many ranks, as h100_x8"),
        ("gh200", 2, "gh200.yaml: has one GPU, expected 2 for so many ranks; a100_80gb_x8, of another card, has so"),
        ("gh200", 12, "gh200.yaml: has one GPU, expected 12 for so many ranks"),
        ("rtx_4090_x4", 8, "rtx_4090_x4.yaml: has 4 GPUs and no network card, expected 8 GPUs, or"),
        ("h100_x8", 12, "h100_x8.yaml: has 8 GPUs, expected a multiple of it in ranks, found 12"),
    ],
)
def test_machines_without_a_gpu_for_each_rank_are_refused(name: str, ranks: int, message: str) -> None:
    assert refusal(ProfileError, machine_of_rank, f"{name}.yaml", shipped_server(name), of_ranks(ranks)).startswith(
        message
    )
