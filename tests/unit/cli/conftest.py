"""A model's captures, replaced by a chain made by hand."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from calibration.capture import isolation
from calibration.capture.request import Request
from tests.captured_steps import chain
from tests.command_line import ROOT
from vdnnsim.dnn.captured_step import CapturedStep


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Request]:
    """What was captured, in this process and in its order; a profile of a card with 40 MiB is there."""
    requests: list[Request] = []

    def captured(missing: Sequence[Request], **_: object) -> tuple[tuple[CapturedStep, None], ...]:
        requests.extend(missing)
        steps = (msgspec.structs.replace(chain(each.batch_size), precision=each.precision) for each in missing)
        return tuple((step, None) for step in steps)

    monkeypatch.setattr(isolation, "captured_together", captured)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    profile = (ROOT / "hw_profiles" / "rtx_4090.yaml").read_text()
    (tmp_path / "hw_profiles").mkdir()
    kernels = "rtx_4090.kernels.csv"
    (tmp_path / "hw_profiles" / kernels).write_bytes((ROOT / "hw_profiles" / kernels).read_bytes())
    (tmp_path / "hw_profiles" / "small.yaml").write_text(
        profile.replace("23.64 GiB", "40 MiB").replace("488 MiB", "1 B").replace("name: rtx_4090\n", "name: small\n")
    )
    return requests
