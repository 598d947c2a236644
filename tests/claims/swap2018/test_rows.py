"""Every row of Kim et al. (2018), with its own tolerance; a row recorded as not reproduced is a strict xfail."""

import pytest

from tests.claims.rows import row_parameters, unmet
from vdnnsim.claims.claim import Claim, Verdict, read_claims
from vdnnsim.claims.swap2018.metrics import METRICS
from vdnnsim.claims.swap2018.runs import ServerRuns

FILE = read_claims("swap2018")


@pytest.mark.parametrize("claim", row_parameters(FILE, "t-2", "t-3"))
def test_the_replay_comes_within_the_tolerance_of_the_paper(claim: Claim, swap_runs: ServerRuns) -> None:
    row = METRICS.check(claim, swap_runs, FILE.hardware)

    assert row.verdict is Verdict.REPRODUCED, f"expected {row.expected}, simulated {row.simulated}"


def test_all_11_claims_are_here_and_7_are_reproduced() -> None:
    """s-1 to s-4 are absolute batches and speeds of a framework; all 12 ratios in Tables II and III are met."""
    of_text = {row.claim_id for row in FILE.claims if row.claim_id.startswith("s-")}
    ratios = {row.id for row in FILE.claims if row.claim_id.startswith("t-")}

    assert of_text == {f"s-{number}" for number in range(1, 12)}
    assert {row.claim_id for row in unmet(FILE) if row.claim_id in of_text} == {"s-1", "s-2", "s-3", "s-4"}
    assert len(ratios) == 12
    assert not {row.id for row in unmet(FILE) if row.id in ratios}
