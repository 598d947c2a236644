"""Plans for memory that is reserved ahead, with as little effort as there is for an answer."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.planning.test_reserved_search import Addresses, Bytes, seconds_of
from vdnnsim.planning import reserved_search
from vdnnsim.planning.deadline import NEVER
from vdnnsim.planning.effort import Effort
from vdnnsim.planning.planner import Planner
from vdnnsim.planning.reserved_search import FEW_SEGMENTS, ReservedSearch, _likely


def test_with_little_effort_the_first_search_has_all_of_it_and_leaves_a_sixteenth_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 326 B 20; it begins with sets that are likely to be dropped, and ends where its plan has room."""
    asked = list[tuple[int, float, object]]()

    def by_bytes(nbytes: int, part: Effort, known: Sequence[object] = (), **_: object) -> Planner:
        asked.append((nbytes, part.left, list(known)[-1:]))
        return cast("Planner", Bytes(nbytes))

    monkeypatch.setattr(reserved_search, "_likely", lambda _: [frozenset({1})])
    found = ReservedSearch(by_bytes, Addresses(306), Effort.until(NEVER, 1000, 500))
    found.search(326)
    assert seconds_of(found) == 10
    assert asked == [(326, 500, []), (306, 500, [frozenset({1})])]


def test_dropped_are_likely_what_the_bound_recomputes_and_all_but_checkpoints() -> None:
    """Of 0 to 3 the bound recomputes 0, 1 and half of 2; some segments have a checkpoint at 1."""
    recomputation = SimpleNamespace(
        droppable=range(4), checkpoints=lambda count: [1] if count > 9 else [], segmented=lambda count: [0, count]
    )
    orders = SimpleNamespace(recomputation=recomputation)
    best = SimpleNamespace(relaxed={0: 1.0, 1: 0.6, 2: 0.5, 3: 0.4})
    planner = cast("Planner", SimpleNamespace(question=SimpleNamespace(orders=orders), best=best))
    half = frozenset({0, 1, 2})
    assert FEW_SEGMENTS == (64, 24, 8, 3)
    cut = [half - {1}, half - {1}, half, half]
    assert _likely(planner) == [half, *cut, *(frozenset({0, each}) for each in FEW_SEGMENTS)]
