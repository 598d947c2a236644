"""Seconds of kernels by the origin of the rates on which they rest."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toy import TOY_SERVER
from vdnnsim.cost.rate_origins import RatedModel, model_origin, rate_origins
from vdnnsim.cost.table import KernelCost
from vdnnsim.hardware.server import Figure, Origin, Server

RATES = {"flop_fraction": 0.5, "dram_fraction": 0.25, "load_flop": 4.0, "launch_overhead_s": 1.0}


def server(values: Mapping[str, float] = RATES, **origins: Origin) -> Server:
    figures = tuple(Figure(f"cost_model.{key}", "", origin, "a page") for key, origin in origins.items())
    return replace(TOY_SERVER, cost_model=values, figures=figures)


MIXED = server(flop_fraction=Origin.FITTED, dram_fraction=Origin.PAPER, launch_overhead_s=Origin.MEASURED)


def cost(machine: Server, flop: float, nbytes: float) -> KernelCost:
    """The longer of arithmetic at 1 FLOP/s and traffic at 1 B/s, at their fractions, and the launch."""
    model = RatedModel(machine, dict)
    return model.cost(
        lambda p: max(flop / p["flop_fraction"], nbytes / p["dram_fraction"]) + p["launch_overhead_s"], int(nbytes)
    )


def test_the_rate_that_limits_a_kernel_gives_its_seconds_their_origin() -> None:
    """8 FLOP take 16 s, 2 bytes 8 s, a launch 1 s: 17 s rest on fits. 5 bytes take 20 s, by a paper's rate."""
    assert cost(MIXED, 8, 2).seconds_by_origin == {Origin.FITTED: 17.0}
    found = cost(MIXED, 8, 5)
    assert (found.seconds, found.origin) == (21.0, Origin.PAPER)
    assert found.seconds_by_origin == pytest.approx({Origin.FITTED: 1.0, Origin.PAPER: 20.0}, rel=1e-6)


def test_seconds_of_several_kernels_add_up_by_origin() -> None:
    """1 s of the launch of each: 18 s fitted, 20 s by a paper."""
    joined = KernelCost.joined([cost(MIXED, 8, 2), cost(MIXED, 8, 5)])
    assert joined.origin is Origin.PAPER
    assert joined.seconds_by_origin == pytest.approx({Origin.FITTED: 18.0, Origin.PAPER: 20.0}, rel=1e-6)


@given(st.lists(st.sampled_from(Origin), min_size=3, max_size=3), st.floats(0.01, 100), st.floats(0.01, 100))
def test_seconds_by_origin_sum_to_those_of_the_kernel(origins: list[Origin], flop: float, nbytes: float) -> None:
    compute, dram, launch = origins
    machine = server(flop_fraction=compute, dram_fraction=dram, launch_overhead_s=launch)
    found = cost(machine, flop, nbytes)
    assert sum(found.seconds_by_origin.values()) == pytest.approx(found.seconds, rel=1e-6)
    assert min(found.seconds_by_origin.values()) > 0


def test_whole_peaks_without_a_fit_are_those_of_the_datasheet() -> None:
    """An unstated origin is assumed; a fraction of 0 is of an algorithm that the library lacks."""
    peaks = {"flop_fraction": 1.0, "dram_fraction": 1.0, "winograd_flop_fraction": 0.0, "launch_overhead_s": 1.0}
    assert set(rate_origins(server(peaks)).values()) == {Origin.DATASHEET}
    assert rate_origins(server(peaks, flop_fraction=Origin.FITTED)) == {
        **dict.fromkeys(peaks, Origin.ASSUMED),
        "flop_fraction": Origin.FITTED,
    }
    assert cost(server(peaks), 1, 1).shares == ()


def test_the_origin_of_a_model_is_that_of_most_of_its_rates() -> None:
    """Two of three count as fitted; a load of a tile is no rate."""
    assert "load_flop" not in rate_origins(MIXED)
    assert model_origin(MIXED) is Origin.FITTED
    assert model_origin(server(flop_fraction=Origin.FITTED)) is Origin.ASSUMED
    assert model_origin(server({})) is Origin.DATASHEET
