"""Every row of Kim et al. (2018), with its own tolerance; a row recorded as not reproduced is a strict xfail."""

import pytest

from tests.claims.rows import row_parameters
from vdnnsim.claims.claim import Claim, Verdict, read_claims
from vdnnsim.claims.swap2018.runs import METRICS, ServerRuns

FILE = read_claims("swap2018")


@pytest.mark.parametrize("claim", row_parameters(FILE, "t-2", "t-3"))
def test_the_replay_comes_within_the_tolerance_of_the_paper(claim: Claim, swap_runs: ServerRuns) -> None:
    row = METRICS.check(claim, swap_runs, FILE.hardware)
    assert row.verdict is Verdict.REPRODUCED, f"expected {row.expected}, simulated {row.simulated}"
