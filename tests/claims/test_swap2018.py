"""Every row of Kim et al. (2018), with its own tolerance; a row recorded as not reproduced is a strict xfail."""

import pytest

from tests.toy import ROOT
from vdnnsim.claims.claim import Claim, read_claims
from vdnnsim.claims.row import Verdict
from vdnnsim.claims.swap2018.check import check_claim
from vdnnsim.claims.swap2018.runs import ServerRuns
from vdnnsim.hardware.profile import find_profile, read_profile

FILE = read_claims("swap2018")
UNMET = [row for row in FILE.claims if row.recorded_verdict is Verdict.NOT_REPRODUCED]


@pytest.fixture(scope="module")
def runs() -> ServerRuns:
    """The replays on the paper's machines, shared by all rows."""
    machines = {claim.hardware or FILE.hardware for claim in FILE.claims}
    return ServerRuns({name: read_profile(find_profile(name, ROOT)) for name in machines})


def row_parameters() -> list[object]:
    return [
        pytest.param(
            claim,
            id=claim.id,
            marks=[pytest.mark.xfail(reason=claim.reason, strict=True)] if claim in UNMET else [],
        )
        for claim in FILE.claims
    ]


@pytest.mark.parametrize("claim", row_parameters())
def test_the_replay_comes_within_the_tolerance_of_the_paper(claim: Claim, runs: ServerRuns) -> None:
    row = check_claim(claim, runs, FILE.hardware)

    assert row.verdict is Verdict.REPRODUCED, f"expected {row.expected}, simulated {row.simulated}"


def test_all_11_claims_are_here_and_7_are_reproduced() -> None:
    """s-1 to s-4 are absolute batches and speeds of a framework; all 12 ratios in Tables II and III are met."""
    of_text = {row.claim_id for row in FILE.claims if row.claim_id.startswith("s-")}
    ratios = {row.id for row in FILE.claims if row.claim_id.startswith("t-")}

    assert of_text == {f"s-{number}" for number in range(1, 12)}
    assert {row.claim_id for row in UNMET if row.claim_id in of_text} == {"s-1", "s-2", "s-3", "s-4"}
    assert len(ratios) == 12
    assert not {row.id for row in UNMET if row.id in ratios}
    assert all(row.reason for row in UNMET)
    assert len({row.id for row in FILE.claims}) == len(FILE.claims)
