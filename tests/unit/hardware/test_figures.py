"""The one table of figures: what reads, writes, varies and explains them knows the same ones."""

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.hardware.figures import FIGURES, definition, definitions, keys_of, numbers_of, with_number
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Gpu, Host, Link, Power, Server
from vdnnsim.hardware.topology import TopologyLink
from vdnnsim.units import ElementType, parse_quantity

TITAN = read_profile(Path(__file__).parents[3] / "hw_profiles" / "titan_x_maxwell.yaml")
NUMBERS = dict(numbers_of(TITAN))


@pytest.mark.parametrize("part", [Gpu, Link, Host, Power, TopologyLink])
def test_every_number_of_a_machine_is_a_figure(part: type) -> None:
    """What else these classes hold are names, a way of sharing, and the table of copies."""
    known = {each.field for each in definitions(part)}
    assert {each.name for each in fields(part)} - known <= {"name", "sharing", "kind", "copies"}


def test_a_figure_knows_its_key_its_field_and_whether_it_may_be_left_out() -> None:
    memory, link = definition("gpu.memory"), definition("power.link")
    found = [(each.path, each.field, each.is_whole, each.stated.decides) for each in (memory, link)]
    assert found == [("gpu.memory", "memory_bytes", True, True), ("power.link", "joules_per_link_byte", False, False)]
    assert keys_of(Gpu) == (
        ["memory", "dram_bandwidth", "multiprocessors", "granule", "peak"],
        ["context", "context_eager", "handle", "l2", "compute_capability"],
    )
    assert keys_of(TopologyLink) == (["down", "up", "latency"], ["kept_down", "kept_up", "nccl"])
    # Names of element types are known, those of parameters free, types of links are named by the profile.
    peak = definition("gpu.peak.float16")
    assert (peak.path, peak.field, peak.names) == ("gpu.peak", "flop_per_s", tuple(each.value for each in ElementType))
    assert (definition("cost_model.anything").field, definition("cost_model.anything").names) == ("cost_model", ())
    assert definition("topology.links.'PCIe gen3 x16'.kept_up").field == "kept_up"


def test_all_figures_of_a_machine_stand_in_the_order_of_its_file() -> None:
    assert sorted(NUMBERS) == sorted(figure.path for figure in TITAN.figures)
    sections = list(dict.fromkeys(path.partition(".")[0] for path in NUMBERS))
    assert sections == ["gpu", "link", "host", "cost_model", "power"]
    assert list(NUMBERS)[:6] == [
        *("gpu.memory", "gpu.dram_bandwidth", "gpu.multiprocessors", "gpu.granule"),
        *("gpu.peak.float32", "gpu.peak.float16"),
    ]


@given(path=st.sampled_from(sorted(NUMBERS)), number=st.integers(1, 10**6))
def test_a_number_that_is_changed_is_the_only_one(path: str, number: int) -> None:
    changed: Server = with_number(TITAN, path, number)
    assert dict(numbers_of(changed)) == NUMBERS | {path: number}


def test_every_figure_says_what_it_is() -> None:
    """In words of its own, with an example that it may have."""
    stated = [each.stated for each in (*FIGURES, *definitions(TopologyLink))]
    for limits in (each.range for each in stated):
        assert limits.low <= parse_quantity(limits.example, limits.dimension) <= limits.high
    assert len({each.words for each in stated} - {""}) == len(stated)
