"""The profiles of servers that are shipped: what their trees say, and where their kernel times come from."""

import shutil
from itertools import combinations
from pathlib import Path

import pytest

from vdnnsim.cost.fit.least_squares import FitRow, fitted_names
from vdnnsim.cost.fit.maxwell import MAXWELL, machine_of, read_fit_rows
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.hardware.topology import Topology
from vdnnsim.hardware.write import profile_text

PROFILES = Path(__file__).parents[2] / "hw_profiles"
SERVERS = ("p100_x2", "p100_x4", "dgx1_p100", "h100_x8", "h200_x8", "gh200")


def server(name: str) -> Server:
    return read_profile(PROFILES / f"{name}.yaml")


def topology(name: str) -> Topology:
    found = server(name).topology
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("p100_x2", [(0, 1)]),
        ("p100_x4", [(0, 1), (2, 3)]),
        ("dgx1_p100", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("h100_x8", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("h200_x8", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("gh200", [(0,)]),
    ],
)
def test_the_groups_of_gpus_are_those_of_the_machine(name: str, groups: list[tuple[int, ...]]) -> None:
    found = topology(name)
    assert list(dict.fromkeys(found.group(gpu) for gpu in range(len(found.gpus)))) == groups


def test_copies_of_a_p100_pass_the_switch_and_the_socket() -> None:
    names = [hop.link for hop in topology("p100_x4").to_host(2)]
    assert names == ["switch1-gpu2", "socket0-switch1", "memory-socket0"]


def test_the_link_of_a_p100_is_its_pcie() -> None:
    """Two links of 5 us; host memory has more than either direction."""
    link = server("p100_x2").link
    assert (link.name, link.h2d_bytes_per_s, link.d2h_bytes_per_s) == ("PCIe gen3 x16", 12.256e9, 13.512e9)
    assert link.latency_s == pytest.approx(10e-6)


def test_dgx1_is_a_hybrid_cube_mesh() -> None:
    """Two full meshes of four, and four edges between them: 2 x 6 + 4 = 16 links, four at each GPU."""
    pairs = {frozenset((peer.first, peer.second)) for peer in topology("dgx1_p100").peers}
    meshes = {frozenset((f"gpu{a}", f"gpu{b}")) for quad in ("0123", "4567") for a, b in combinations(quad, 2)}
    assert pairs == meshes | {frozenset((f"gpu{g}", f"gpu{g + 4}")) for g in range(4)}
    assert len(topology("dgx1_p100").peers) == 16


@pytest.mark.parametrize("name", ["h100_x8", "h200_x8"])
def test_hopper_servers_have_a_fabric_between_all(name: str) -> None:
    found = topology(name)
    assert [hop.link for hop in found.between(0, 7)] == ["fabric-gpu0", "fabric-gpu7"]
    assert found.links["fabric-gpu0"].down_bytes_per_s == 450e9


def test_eight_h200_are_the_gpu_and_the_kernels_of_one() -> None:
    one, eight = server("h200"), server("h200_x8")
    assert eight.gpu == one.gpu
    assert eight.kernels == one.kernels
    assert eight.cost_model == one.cost_model
    assert eight.link.h2d_bytes_per_s == one.link.h2d_bytes_per_s


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_written_as_it_was_read(name: str, tmp_path: Path) -> None:
    """The kernels of a profile lie beside it, so the copy of h200_x8 finds none where it is written."""
    read = server(name)
    if read.kernels is not None:
        shutil.copy(read.kernels.table, tmp_path)
    path = tmp_path / f"{name}.yaml"
    path.write_text(profile_text(read, "a server"), encoding="utf-8")
    again = read_profile(path)
    assert (again.topology, again.link, again.gpu, again.host) == (read.topology, read.link, read.gpu, read.host)
    assert again.figures == read.figures


@pytest.mark.parametrize(
    ("name", "ring"),
    [
        ("dgx1_p100", (0, 1, 2, 3, 7, 5, 6, 4)),
        ("h100_x8", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("p100_x4", (0, 1, 2, 3)),
    ],
)
def test_a_ring_goes_over_peer_links_where_they_close_one(name: str, ring: tuple[int, ...]) -> None:
    """The cube mesh joins 0 to 3 and 4 to 7 with each other, and 0 to 4, 1 to 5, 2 to 6, 3 to 7; the P100 by no peer.

    By number 0, 1, 2, 3 leads to 7. Behind it 4 cannot be the last, and of 5 and 6 neither is a peer of 0; so 5 comes
    next, and behind 5 not 4, for the same reason, but 6, and 4 closes the ring.
    """
    assert topology(name).ring(len(ring)) == ring


@pytest.mark.parametrize("name", ["p100_x4", "dgx1_p100"])
def test_all_p100_have_the_kernel_times_that_were_fitted(name: str) -> None:
    assert server(name).cost_model == server("p100_x2").cost_model


@pytest.mark.parametrize("name", ["h100_x8", "gh200"])
def test_kernels_that_nobody_measured_are_marked_as_assumed(name: str) -> None:
    figures = [figure for figure in server(name).figures if figure.path.startswith("cost_model.")]
    assert {figure.origin for figure in figures} == {Origin.ASSUMED}


@pytest.fixture(scope="module", params=["titan_xp", "p100_x2"])
def fitted(request: pytest.FixtureRequest) -> tuple[Server, tuple[FitRow, ...]]:
    return server(request.param), read_fit_rows(PROFILES / f"{request.param}.fit.csv")


@pytest.mark.thorough
def test_a_refit_on_pascal_gives_the_parameters_of_the_profile(fitted: tuple[Server, tuple[FitRow, ...]]) -> None:
    pytest.importorskip("scipy")
    machine, rows = fitted
    refitted = MAXWELL.fit(machine, rows)
    assert refitted == pytest.approx({name: machine.cost_model[name] for name in fitted_names(machine)}, rel=0.01)
    assert len(machine.cost_model) - len(refitted) == 4


def test_rows_on_pascal_are_public_and_of_no_network(fitted: tuple[Server, tuple[FitRow, ...]]) -> None:
    """94 convolutions of DeepBench, of which some are one shape measured twice or have no data gradient."""
    _, rows = fitted
    assert all(row.origin.startswith("baidu-research/DeepBench da81ba78 results/train/") for row in rows)
    assert all(row.subject.startswith("conv ") for row in rows)
    assert {row.role for row in rows} == {"fit", "held_out"}
    assert {row.group for row in rows if row.role == "held_out"} == {"DeepBench first layer data"}


def test_filters_of_vgg_are_predicted_as_well_as_stated(fitted: tuple[Server, tuple[FitRow, ...]]) -> None:
    """The mean absolute error of 3 x 3 filters is 14 % on the Titan Xp and 13 % on the P100."""
    machine, rows = fitted
    stated = machine_of(machine, {})
    errors = [abs(row.relative_error(stated)) for row in rows if row.group.startswith("DeepBench 3x3")]
    assert sum(errors) / len(errors) < 0.145
