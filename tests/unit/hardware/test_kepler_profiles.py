"""The profiles of Kepler: where the kernel times of the Layrub paper's machines come from."""

from pathlib import Path

import pytest

from vdnnsim.cost.fit.least_squares import fitted_names
from vdnnsim.cost.fit.maxwell import MAXWELL, machine_of, read_fit_rows
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Origin, Server

PROFILES = Path(__file__).parents[3] / "hw_profiles"
TITAN_BLACK = PROFILES / "titan_black.yaml"


def server(name: str) -> Server:
    return read_profile(PROFILES / f"{name}.yaml")


@pytest.mark.slow
def test_a_refit_gives_the_parameters_of_the_profile() -> None:
    pytest.importorskip("scipy")
    machine = read_profile(TITAN_BLACK)
    refitted = MAXWELL.fit(machine, read_fit_rows(TITAN_BLACK.with_suffix(".fit.csv")))
    assert refitted == pytest.approx({name: machine.cost_model[name] for name in fitted_names(machine)}, rel=0.01)
    assert len(machine.cost_model) - len(refitted) == 7


def test_rows_are_public_and_of_none_of_the_papers() -> None:
    rows = read_fit_rows(TITAN_BLACK.with_suffix(".fit.csv"))
    assert len(rows) == 29
    assert all(
        row.origin.startswith(("soumith/convnet-benchmarks bb3628cf", "soumith/convnet-benchmarks 3329f920"))
        for row in rows
    )
    assert {row.subject for row in rows if row.role == "held_out"} == {"overfeat"}


def test_rows_are_predicted_as_well_as_stated() -> None:
    """Mean absolute errors: networks in the fit 7.4 %, single layers 8.8 %, the network held out 15.3 %."""
    machine = read_profile(TITAN_BLACK)
    stated = machine_of(machine, {})
    for group, role, error in (
        ("network R2", "fit", 0.074),
        ("layer R2", "fit", 0.088),
        ("network R2", "held_out", 0.153),
    ):
        rows = [
            row for row in read_fit_rows(TITAN_BLACK.with_suffix(".fit.csv")) if (row.group, row.role) == (group, role)
        ]
        assert sum(abs(row.relative_error(stated)) for row in rows) / len(rows) == pytest.approx(error, abs=0.001)


@pytest.mark.parametrize("name", ["k40m", "titan_z"])
def test_cards_of_the_same_chip_have_its_parameters_marked_as_assumed(name: str) -> None:
    assert server(name).cost_model == server("titan_black").cost_model
    figures = [figure for figure in server(name).figures if figure.path.startswith("cost_model.")]
    assert {figure.origin for figure in figures} == {Origin.ASSUMED}
