"""The rows of a paper as parameters of a test: one that is recorded as not reproduced is a strict xfail."""

import pytest

from tests.toy import ROOT
from vdnnsim.claims.claim import Claim, ClaimsFile, Verdict
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Server


def unmet(file: ClaimsFile) -> list[Claim]:
    """Return the rows that are recorded as not reproduced."""
    return [row for row in file.claims if row.recorded is Verdict.NOT_REPRODUCED]


def row_parameters(file: ClaimsFile, *thorough: str) -> list[object]:
    """Return the rows of a paper; those of the claims `thorough`, which take long, are for `pytest -m thorough`."""
    missed = unmet(file)
    return [
        pytest.param(
            claim,
            id=claim.id,
            marks=[
                *([pytest.mark.thorough] if claim.claim_id in thorough else []),
                *([pytest.mark.xfail(reason=claim.reason, strict=True)] if claim in missed else []),
            ],
        )
        for claim in file.claims
    ]


def machines(file: ClaimsFile) -> dict[str, Server]:
    """The machines of a paper by the names of their profiles."""
    return {name: read_profile(path) for name, path in file.find_profiles(ROOT).items()}
