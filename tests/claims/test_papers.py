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

    assert opened == {
        "vdnn2016": VdnnRuns,
        "swap2018": ServerRuns,
        "layrub2018": LayrubRuns,
        "public2026": Scoreboard,
    }


@pytest.mark.parametrize("name", PAPERS)
def test_ids_are_unique_and_what_is_not_reproduced_has_a_reason(name: str) -> None:
    claims = read_claims(name).claims

    assert len({claim.id for claim in claims}) == len(claims)
    assert all(claim.reason for claim in claims if claim.recorded is Verdict.NOT_REPRODUCED)
