import pytest

from tests.toy import ROOT
from vdnnsim.claims.swap2018.runs import SwapReading, behind_one_port
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.topology import Topology


@pytest.fixture(scope="module")
def four() -> Topology:
    """Two switches with two GPUs each, and a port of the host for each switch."""
    topology = read_profile(find_profile("p100_x4", ROOT)).topology
    assert topology is not None
    return topology


def shared(topology: Topology, a: int, b: int) -> int:
    """The number of links that the ways of two GPUs to the host have in common."""
    return len({hop.link for hop in topology.to_host(a)} & {hop.link for hop in topology.to_host(b)})


def test_behind_one_port_all_four_gpus_share_a_link(four: Topology) -> None:
    """GPUs of one switch share two links to the host, that of the switch and host memory; others only host memory.

    With one more switch above both all ways are a link longer, and others share two as well.
    """
    other = behind_one_port(four)

    assert [len(four.to_host(gpu)) for gpu in range(4)] == [3] * 4
    assert [len(other.to_host(gpu)) for gpu in range(4)] == [4] * 4
    assert (shared(four, 0, 1), shared(four, 0, 2)) == (2, 1)
    assert (shared(other, 0, 1), shared(other, 0, 2)) == (3, 2)
    assert [other.group(gpu) for gpu in range(4)] == [four.group(gpu) for gpu in range(4)]


def test_what_a_framework_keeps_is_no_memory_of_the_gpu() -> None:
    server = read_profile(find_profile("titan_xp", ROOT))

    kept = SwapReading("x", kept_fraction=0.25, one_root=True).change(server)

    assert kept.gpu.memory_bytes == 9 * 2**30, "3/4 of 12 GiB"
    assert kept.topology is None, "one GPU on a link of its own stays so"
    assert SwapReading().change(server) == server
