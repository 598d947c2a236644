"""The fit of what hosts spend before kernels."""

from pathlib import Path

import pytest

from vdnnsim.cost.host_fit import HostRow, fit_host, left_out, predicted_s, read_host_rows, report
from vdnnsim.hardware.profile import load_profile

PROFILES = Path(__file__).parents[3] / "hw_profiles"
ROWS = read_host_rows(PROFILES / "hosts.fit.csv")


def row(family: str, operators: int, nodes: int, calls: int, seconds: float) -> HostRow:
    """A step of 9 parameters that reads 4 kB, whose nodes run two kernels each."""
    return HostRow("toy", family, family, "training", "float32", operators, nodes, 2 * nodes, calls, 9, 4000, seconds)


def test_what_rows_were_made_of_is_found_again() -> None:
    """10, 100 and 20 us. 97 operators, 50 nodes: 1 us of copying, 97 + 100 + 18 calls of 5 us, 100 x 10, 50 x 100.

    That is 7,076 us; 47 operators and 10 nodes are 1 + 425 + 500 + 1,000 = 1,926 us, and 7 and 10: 1 + 225 + 100 +
    1,000 = 1,326 us. 30 calls of cuDNN make 600 us more of the first, one 20 more of the last.
    """
    rows = [row("a", 97, 50, 30, 7676e-6), row("b", 47, 10, 0, 1926e-6), row("c", 7, 10, 0, 1326e-6)]
    rows.append(row("d", 7, 10, 1, 1346e-6))

    assert fit_host(rows) == pytest.approx((10e-6, 100e-6, 20e-6))
    rows.append(row("e", 97, 50, 0, 7076e-6))
    assert [seconds for _, seconds in left_out(rows)] == pytest.approx([each.seconds for each in rows])
    assert predicted_s(row("f", 97, 50, 3, 1.0), (0.0, 0.0, 0.0)) == pytest.approx(1076e-6)


@pytest.mark.parametrize("name", ["a100_40gb", "titan_rtx", "rtx_2080ti", "titan_v"])
def test_profiles_state_what_the_fit_finds(name: str) -> None:
    """In three digits, and as fitted."""
    server = load_profile(PROFILES / f"{name}.yaml").server
    fitted = fit_host([each for each in ROWS if each.host == name])

    assert server.host.issuing[1:] == pytest.approx(fitted, rel=5e-3)
    origins = {each.path: each.origin.value for each in server.figures}
    assert {origins[f"host.dispatch_{each}"] for each in ("forward", "backward", "library")} == {"fitted"}


def test_the_report_has_every_row_and_what_profiles_state() -> None:
    lines = list(report(ROWS))

    assert len(lines) == len(ROWS) + 4 * len({each.host for each in ROWS})
    assert "a100_40gb: 36 rows, families left out: 10.4% on average, bias -0.1%" in lines
    assert any(line.startswith("rtx_2080ti: dispatch_backward 119.1 us; the profile states 119") for line in lines)
