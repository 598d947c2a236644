from pathlib import Path

import pytest

from vdnnsim.claims.claim import PAPERS, read_claims
from vdnnsim.claims.layrub2018.paper import Layrub2018
from vdnnsim.claims.papers import open_paper
from vdnnsim.claims.swap2018.paper import Swap2018
from vdnnsim.claims.vdnn2016.paper import Vdnn2016


def test_each_paper_opens_as_its_own() -> None:
    """Whatever the working directory: profiles are found in the package too."""
    opened = {name: type(open_paper(read_claims(name), Path("/"))) for name in PAPERS}

    assert opened == {"vdnn2016": Vdnn2016, "swap2018": Swap2018, "layrub2018": Layrub2018}


@pytest.mark.parametrize("name", PAPERS)
def test_ids_are_unique_and_what_is_not_reproduced_has_a_reason(name: str) -> None:
    claims = read_claims(name).claims

    assert len({claim.id for claim in claims}) == len(claims)
    assert all(claim.reason for claim in claims if claim.recorded == "not reproduced")
