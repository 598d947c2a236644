import pytest

from tests.toy import ROOT
from vdnnsim.claims.swap2018.reading import Reading
from vdnnsim.claims.swap2018.runs import Place, ServerRuns
from vdnnsim.claims.swap2018.speed import FIRST_ROWS
from vdnnsim.claims.swap2018.tables import TABLES_OF_SPEED
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Server


@pytest.fixture(scope="module")
def server() -> Server:
    return read_profile(find_profile("p100_x2", ROOT))


def test_the_first_row_without_swap_has_the_speed_of_the_paper(server: Server) -> None:
    """120 images at 83.56 images/s are 1.436 s; with the kernel times of DeepBench it is less, and so is all else."""
    runs = ServerRuns({"p100_x2": server})
    place = Place("p100_x2", 2)

    assert runs.iteration_s(place, "vgg_d_13conv", 120, "none(tensorflow)") == pytest.approx(120 / 83.56, rel=1e-3)
    measured = runs.under(Reading("x", own_speed=False))
    assert measured.server("p100_x2") == server
    assert measured.iteration_s(place, "vgg_d_13conv", 120, "none(tensorflow)") < 120 / 83.56


def test_the_first_rows_are_those_of_the_tables() -> None:
    for place, rows in TABLES_OF_SPEED.values():
        first = FIRST_ROWS[place.hardware]
        batch, (without_swap, _, _) = next(iter(rows.items()))
        assert (first.gpus, first.batch_size, first.images_per_s) == (place.gpus, batch, without_swap)
