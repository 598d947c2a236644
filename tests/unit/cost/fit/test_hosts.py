"""The fit of what hosts spend before kernels."""

import pandas as pd
import pytest

from tests.toy import ROOT
from vdnnsim.cost.fit.hosts import fit_host, host_report, left_out_s
from vdnnsim.hardware.profile import load_profile

PROFILES = ROOT / "hw_profiles"
ROWS = PROFILES / "hosts.fit.csv"


def test_what_rows_were_made_of_is_found_again() -> None:
    """10, 100 and 20 us; each step has 9 parameters and reads 4 kB, each node runs two kernels.

    97 operators, 50 nodes: 1 us of copying, 97 + 100 + 18 calls of 5 us, 100 x 10, 50 x 100. That is 7,076 us; 47
    operators and 10 nodes are 1 + 425 + 500 + 1,000 = 1,926 us, and 7 and 10: 1 + 225 + 100 + 1,000 = 1,326 us. 30
    calls of cuDNN make 600 us more of the first, one 20 more of the last.
    """
    columns = ["family", "operators", "nodes", "library_calls", "seconds"]
    made = [("a", 97, 50, 30, 7676e-6), ("b", 47, 10, 0, 1926e-6), ("c", 7, 10, 0, 1326e-6), ("d", 7, 10, 1, 1346e-6)]
    rows = pd.DataFrame([*made, ("e", 97, 50, 0, 7076e-6)], columns=columns)
    rows = rows.assign(kernels=2 * rows.nodes, parameters=9, input_bytes=4000)

    assert fit_host(rows[:4]) == pytest.approx((10e-6, 100e-6, 20e-6))
    assert left_out_s(rows).tolist() == pytest.approx(rows.seconds.tolist())


@pytest.mark.parametrize("name", ["a100_40gb", "titan_rtx", "rtx_2080ti", "titan_v"])
def test_profiles_state_what_the_fit_finds(name: str) -> None:
    server = load_profile(PROFILES / f"{name}.yaml").server
    rows = pd.read_csv(ROWS)

    assert (
        server.host.dispatch_forward_s,
        server.host.dispatch_backward_s,
        server.host.dispatch_library_s,
    ) == pytest.approx(tuple(fit_host(rows[rows.host == name])), rel=5e-3)
    origins = {each.path: each.origin.value for each in server.figures}
    assert {origins[f"host.dispatch_{each}"] for each in ("forward", "backward", "library")} == {"fitted"}


def test_the_report_has_every_row_and_what_profiles_state() -> None:
    lines, rows = list(host_report(ROWS)), pd.read_csv(ROWS)

    assert len(lines) == len(rows) + 4 * rows.host.nunique()
    assert "a100_40gb: 36 rows, families left out: 10.4% on average, bias -0.1%" in lines
    assert any(line.startswith("rtx_2080ti: dispatch_backward 119.1 us; the profile states 119") for line in lines)
