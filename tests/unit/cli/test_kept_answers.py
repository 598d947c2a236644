"""Answers about a model that go on from what was tried before; instead of a capture there is a chain made by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_model import vdnnsim
from vdnnsim.analysis.answer import Way
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.replay_budget import ReplayBudget


@pytest.mark.usefixtures("asked")
def test_an_interrupted_answer_goes_on_from_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """After three ways, which are not tried again; what the command says is before click's last word."""
    arguments = ("run", "--model", "timm:chain", "--batch", "300000", "--hardware", "small")
    once, tried = ReplayBudget.once, list[Way]()

    def noted(self: ReplayBudget, asked: Way, operations: int, found: Callable[[], Way], **how: int) -> Way:
        def replayed() -> Way:
            if len(tried) == 3:
                raise KeyboardInterrupt
            tried.append(asked)
            return found()

        return once(self, asked, operations, replayed, **how)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(ReplayBudget, "once", noted)
        done = vdnnsim(*arguments)
    assert done.exit_code == 1
    assert done.stderr.endswith(
        "\nkept what was captured and what was tried; the same command goes on from there\n\nAborted!\n"
    )
    again: list[Way] = []

    def listed(self: ReplayBudget, asked: Way, operations: int, found: Callable[[], Way], **how: int) -> Way:
        if asked not in self.known:
            again.append(asked)
        return once(self, asked, operations, found, **how)

    monkeypatch.setattr(ReplayBudget, "once", listed)
    assert vdnnsim(*arguments).exit_code == 0
    assert again
    assert not {*again} & {*tried}


@pytest.mark.usefixtures("asked")
def test_what_was_tried_for_one_policy_is_not_tried_again_for_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answer is that of an empty cache; of all that it tries, `checkpoint` and searches were not known."""
    arguments = ("run", "--model", "timm:chain", "--batch", "300000", "--hardware", "small", "--policy")
    tried: list[str] = []
    row = AnswerReplays.row

    def noted(self: AnswerReplays, name: str, *how: Any) -> PolicyResult | str:  # noqa: ANN401
        tried.append(name)
        return row(self, name, *how)

    monkeypatch.setattr(AnswerReplays, "row", noted)
    found = {}
    for before in ((), ("pytorch",)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"{len(before)}"))
        for policy in before:
            vdnnsim(*arguments, policy)
        tried.clear()
        found[before] = vdnnsim(*arguments, "checkpoint").stdout, len(tried)
    (alone, all_tried), (after, few) = found.values()
    assert after == alone
    assert few < all_tried / 2
