"""The command `claims`, on replays of the other tests."""

import csv
from pathlib import Path

import msgspec
import pytest

from tests.command_line import vdnnsim
from vdnnsim.claims.claim import read_claims
from vdnnsim.claims.vdnn2016.runs import VdnnRuns


def test_claims_are_held_against_replays(tmp_path: Path, vdnn_runs: VdnnRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of AlexNet in the table and the CSV; exit status 0."""
    file = read_claims("vdnn2016")
    few = tuple(each for each in file.claims if each.networks == ("alexnet(128)",))
    monkeypatch.setattr("vdnnsim.claims.claim.read_claims", lambda _: msgspec.structs.replace(file, claims=few))
    monkeypatch.setattr("vdnnsim.claims.paper.VdnnRuns", lambda _: vdnn_runs)

    done = vdnnsim("claims", "--csv", "claims.csv", folder=tmp_path)

    assert "v-vm-7.alexnet" in done.stdout
    assert done.stderr == f"{len(few)} of {len(few)} claims reproduced\n"
    with (tmp_path / "claims.csv").open() as read:
        header, *rows = csv.reader(read)
    assert header[:8] == ["id", "where", "metric", "expected", "simulated", "error", "verdict", "reason"]
    assert [row[0] for row in rows] == [each.id for each in few]


def test_a_claim_that_is_no_longer_reproduced_is_exit_status_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AlexNet (128) takes 1.18 GiB, where the file states 2."""
    file = read_claims("vdnn2016")
    claim = msgspec.structs.replace(next(each for each in file.claims if each.id == "v-mem-1"), expected=2.0)
    monkeypatch.setattr("vdnnsim.claims.claim.read_claims", lambda _: msgspec.structs.replace(file, claims=(claim,)))
    done = vdnnsim("claims", folder=tmp_path, status=3)
    assert done.stderr.endswith("other than recorded: v-mem-1 (not reproduced)\n")
