"""Every row of a paper, with its own tolerance; a row recorded as not reproduced is a strict xfail."""

from typing import Any

import pytest

from vdnnsim.claims.check import Metrics
from vdnnsim.claims.claim import Claim, Verdict, read_claims
from vdnnsim.claims.layrub2018 import metrics as layrub2018
from vdnnsim.claims.swap2018 import runs as swap2018
from vdnnsim.claims.vdnn2016 import metrics as vdnn2016

METRICS: dict[str, Metrics[Any]] = {
    "vdnn2016": vdnn2016.METRICS,
    "swap2018": swap2018.METRICS,
    "layrub2018": layrub2018.METRICS,
}
THOROUGH = {("swap2018", "t-2"), ("swap2018", "t-3"), ("layrub2018", "t-6"), ("layrub2018", "l-19")}
"""Claims whose rows take long."""


def marks(paper: str, claim: Claim) -> list[pytest.MarkDecorator]:
    found = [pytest.mark.thorough] if (paper, claim.claim_id) in THOROUGH else []
    if claim.recorded is Verdict.NOT_REPRODUCED:
        found.append(pytest.mark.xfail(reason=claim.reason, strict=True))
    return found


ROWS = [
    pytest.param(paper, claim, id=f"{paper}-{claim.id}", marks=marks(paper, claim))
    for paper in METRICS
    for claim in read_claims(paper).claims
]


@pytest.mark.parametrize(("paper", "claim"), ROWS)
def test_the_replay_comes_within_the_tolerance_of_the_paper(
    paper: str, claim: Claim, request: pytest.FixtureRequest
) -> None:
    runs = request.getfixturevalue(f"{paper.rstrip('0123456789')}_runs")
    row = METRICS[paper].check(claim, runs, read_claims(paper).hardware)
    assert row.verdict is Verdict.REPRODUCED, f"expected {row.expected}, simulated {row.simulated}"
