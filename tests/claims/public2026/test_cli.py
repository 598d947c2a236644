"""`vdnnsim claims --paper public2026` with and without PyTorch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from calibration.capture.request import Request
from tests.captured_steps import chain
from tests.claims.public2026.test_scoreboard import BUILT, board_of, time_row
from tests.command_line import vdnnsim
from vdnnsim.claims.claim import read_claims
from vdnnsim.claims.public2026.replays import Capture
from vdnnsim.claims.public2026.scoreboard import Scoreboard
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.hardware.server import Server

COMMAND = import_module("vdnnsim.cli.claims")
FOREIGN = replace(BUILT, network="timm:chain", channels_last=True)


@pytest.fixture(autouse=True)
def one_aim(monkeypatch: pytest.MonkeyPatch) -> None:
    """One aim of two rows: of a network that is built here, and of one that is captured."""
    file = read_claims("public2026")
    aim = next(each for each in file.claims if each.id == "twelve-titan-xp-training-float32.error")
    monkeypatch.setattr("vdnnsim.claims.claim.read_claims", lambda _: msgspec.structs.replace(file, claims=(aim,)))

    def of(_: Mapping[str, Server], profiles: Mapping[str, Path], capture: Capture | None) -> Scoreboard:
        assert "titan_xp" in profiles
        return board_of(time_row(BUILT, 2, 1.0), time_row(FOREIGN, 2, 1.0), capture=capture)

    monkeypatch.setattr(Scoreboard, "of", of)


def test_without_pytorch_rows_of_built_networks_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exit status 0: what was recorded of all rows does not hold of some."""
    monkeypatch.setattr(COMMAND, "find_spec", lambda _: None)
    vdnnsim("claims", "--paper", "public2026", "--csv", "aims.csv", folder=tmp_path)
    assert "1 of 2 rows" in (tmp_path / "aims.csv").read_text()


def test_networks_are_captured_as_their_script_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels last, images of 224 pixels, no optimizer."""
    asked: list[Request] = []

    def captured(requests: Sequence[Request], **_: object) -> tuple[tuple[CapturedStep, Path | None], ...]:
        asked.extend(requests)
        return tuple((chain(each.batch_size), None) for each in requests)

    monkeypatch.setattr(COMMAND, "find_spec", lambda name: name)
    monkeypatch.setattr("calibration.capture.isolation.captured_together", captured)

    done = vdnnsim("claims", "--paper", "public2026", "--csv", "aims.csv", folder=tmp_path)

    assert "2 of 2 rows" in (tmp_path / "aims.csv").read_text()
    assert "captured timm:chain at a batch of 2 in float32 with sgd\n" in done.stderr
    assert asked == [
        Request(model="timm:chain", batch_size=2, image=(3, 224, 224), optimizer="none", channels_last=True)
    ]
