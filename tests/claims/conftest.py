"""The replays of each paper, made once for all tests of a worker."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from tests.toy import ROOT
from vdnnsim.claims.claim import read_claims
from vdnnsim.claims.layrub2018.runs import LayrubRuns
from vdnnsim.claims.swap2018.runs import ServerRuns
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Server

Question = TypeVar("Question")
Answer = TypeVar("Answer")


def machines(paper: str) -> dict[str, Server]:
    """The machines of a paper by the names of their profiles."""
    return {name: read_profile(path) for name, path in read_claims(paper).find_profiles(ROOT).items()}


@pytest.fixture(scope="session")
def vdnn_runs() -> VdnnRuns:
    """The replays of Rhu et al. on the paper's machine."""
    return VdnnRuns(machines("vdnn2016")[read_claims("vdnn2016").hardware])


@pytest.fixture(scope="session")
def swap_runs() -> ServerRuns:
    """The replays of Kim et al. on the paper's machines."""
    return ServerRuns(machines("swap2018"))


@pytest.fixture(scope="session")
def layrub_runs() -> LayrubRuns:
    """The replays of Jin et al. on the paper's machines."""
    return LayrubRuns(machines("layrub2018"))


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute readings and draws here: a process takes longer to begin than these."""

    def answers(answer: Callable[[Question], Answer], questions: Iterable[Question], _: object) -> list[Answer]:
        return [answer(each) for each in questions]

    monkeypatch.setattr("reports.swap2018.readings.on_all_cores", answers)
    monkeypatch.setattr("reports.vdnn2016.readings.on_all_cores", answers)


@pytest.fixture
def no_labels_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture of a report has names or numbers over each other."""
    from tests.overlaps import refuse_overlaps

    refuse_overlaps(monkeypatch)
