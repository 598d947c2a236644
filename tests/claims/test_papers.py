from pathlib import Path

import pytest

from vdnnsim.claims.claim import PAPERS, Verdict, read_claims
from vdnnsim.claims.layrub2018.runs import LayrubRuns
from vdnnsim.claims.paper import open_paper
from vdnnsim.claims.public2026.scoreboard import Scoreboard
from vdnnsim.claims.swap2018.runs import ServerRuns
from vdnnsim.claims.vdnn2016.runs import VdnnRuns


def test_each_paper_opens_as_its_own() -> None:
    """Whatever the working directory: profiles are found in the package too."""
    opened = {name: type(open_paper(read_claims(name), Path("/")).runs) for name in PAPERS}
    kinds = (VdnnRuns, ServerRuns, LayrubRuns, Scoreboard)
    assert opened == dict(zip(("vdnn2016", "swap2018", "layrub2018", "public2026"), kinds, strict=True))


@pytest.mark.parametrize(
    ("name", "prefix", "claims", "missed", "numbers"),
    [
        ("vdnn2016", "v-", 35, {"v-pow-1"}, 0),
        # Absolute batches and speeds of a framework; all ratios of Tables II and III are met.
        ("swap2018", "s-", 11, {"s-1", "s-2", "s-3", "s-4"}, 12),
        ("layrub2018", "l-", 19, {"l-3", "l-6", "l-8", "l-10", "l-11", "l-12", "l-17"}, 79),
    ],
)
def test_all_claims_of_a_paper_are_here_and_those_that_are_not_reproduced(
    name: str, prefix: str, claims: int, missed: set[str], numbers: int
) -> None:
    """34 of 35, 7 of 11, 12 of 19 claims of the text; numbers of the tables apart."""
    file = read_claims(name)
    tables = [row for row in file.claims if row.id.startswith("t-")]
    assert len({row.claim_id for row in file.claims if row.claim_id.startswith(prefix)}) == claims
    unmet = {row.claim_id for row in file.claims if row.recorded is Verdict.NOT_REPRODUCED}
    assert {each for each in unmet if each.startswith(prefix)} == missed
    assert sum(row.recorded is Verdict.REPRODUCED for row in tables) == numbers


@pytest.mark.parametrize("name", PAPERS)
def test_ids_are_unique_and_missed_claims_have_a_reason(name: str) -> None:
    claims = read_claims(name).claims
    assert len({claim.id for claim in claims}) == len(claims)
    assert all(claim.reason for claim in claims if claim.recorded is Verdict.NOT_REPRODUCED)
