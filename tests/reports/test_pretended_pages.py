"""Pages on a pretended GPU: those committed are what their tables say, and figures that were set beside those found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.pretend.card import card_of
from reports.apply_pages import apply_page, promises_page
from reports.pretended_pages import rate_rows, read_rows, report_text, trials_page
from tests.machines import shipped_server
from tests.toy import ROOT
from vdnnsim.units import ElementType

REPORTS = ROOT / "reports"
SERVER = shipped_server("h100_sxm")
CARD = card_of(SERVER)


@pytest.mark.parametrize(
    ("page", "write"),
    [
        ("apply/README.md", lambda folder: apply_page(read_rows(folder / "comparison.csv"))),
        ("apply/promises.md", lambda folder: promises_page(read_rows(folder / "promises.csv"))),
        ("validation/pretended/trials.md", trials_page),
    ],
)
def test_a_committed_page_is_what_its_tables_say(page: str, write: Callable[[Path], str]) -> None:
    assert write((REPORTS / page).parent) == (REPORTS / page).read_text()


def test_a_figure_that_was_found_a_tenth_too_small_is_off_by_minus_10_percent() -> None:
    """0.9 of what was set is off by -10 %; all else is what was set. The page begins with what it proves."""
    found = replace(SERVER, gpu=replace(SERVER.gpu, flop_per_s={ElementType.FLOAT32: 0.9 * CARD.flop_per_s}))
    off = {name: by for name, _, _, by in rate_rows(CARD, found)}
    assert off.pop("float32, FLOP/s") == "-10.00 %"
    assert set(off.values()) == {"+0.00 %"}
    assert report_text(CARD, found, ()).startswith("This proves PyTorch's host code")
