"""The report of a pretended GPU: its first line, and figures that were set beside those that were found."""

from dataclasses import replace

from calibration.pretend.card import card_of
from tests.pretend.rates_page import rate_rows, report_text
from tests.toy import ROOT
from vdnnsim.hardware.profile import read_profile
from vdnnsim.units import ElementType

SERVER = read_profile(ROOT / "hw_profiles" / "h100_sxm.yaml")
CARD = card_of(SERVER)


def test_report_begins_with_what_it_proves() -> None:
    first = report_text(CARD, SERVER, ()).partition("\n")[0]
    assert first.startswith(
        "This proves PyTorch's host code, memory and order on real addresses, and no kernel's speed"
    )


def test_a_figure_that_was_found_a_tenth_too_small_is_off_by_minus_10_percent() -> None:
    """0.9 of what was set is off by -10 %; all else is what was set."""
    rate = CARD.flop_per_s
    found = replace(SERVER, gpu=replace(SERVER.gpu, flop_per_s={ElementType.FLOAT32: 0.9 * rate}))
    off = {name: by for name, _, _, by in rate_rows(CARD, found)}
    assert off.pop("float32, FLOP/s") == "-10.00 %"
    assert set(off.values()) == {"+0.00 %"}
