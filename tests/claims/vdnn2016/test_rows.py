"""Every row of the vDNN paper, with its own tolerance; a row recorded as not reproduced is a strict xfail."""

import pytest

from tests.claims.rows import row_parameters
from vdnnsim.claims.claim import Claim, Verdict, read_claims
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import VdnnRuns

FILE = read_claims("vdnn2016")


@pytest.mark.parametrize("claim", row_parameters(FILE))
def test_the_replay_comes_within_the_tolerance_of_the_paper(claim: Claim, vdnn_runs: VdnnRuns) -> None:
    row = METRICS.check(claim, vdnn_runs, FILE.hardware)
    assert row.verdict is Verdict.REPRODUCED, f"expected {row.expected}, simulated {row.simulated}"
