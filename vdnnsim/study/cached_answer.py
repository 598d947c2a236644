"""Answers and what was tried for them in the user's cache, where the same was asked before with the same code."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from vdnnsim.analysis.answer import Answer, Way
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.files.packaged import PROFILES, shipped_folder
from vdnnsim.files.user_cache import keep, user_cache
from vdnnsim.planning.deadline import NEVER, Deadline, TimeLimit
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer import answer
from vdnnsim.study.replay_budget import OPERATIONS, PER_S, ReplayBudget, Tried

_Kept = TypeVar("_Kept", bound=msgspec.Struct)


class _KeptAnswer(msgspec.Struct, frozen=True):
    """An answer, whether all was tried, and what was tried, also what the answer leaves out."""

    answer: Answer = Answer()
    complete: bool = False
    tried: tuple[tuple[Way, Way], ...] = ()


class _KeptWays(msgspec.Struct, frozen=True):
    """What was tried, before and after, and the steps of searches."""

    tried: tuple[tuple[Way, int, Way], ...] = ()


@contextmanager
def kept_ways(scenario: Scenario) -> Iterator[Tried]:
    """Yield what was tried for a captured model on its machine, whatever was asked; what is added is kept.

    After an interrupt its exception says so.
    """
    file = _file(_digest(scenario))
    found = _read(file, _KeptWays)
    kept: Tried = {(asked, steps): way for asked, steps, way in found.tried}
    try:
        yield kept
    except KeyboardInterrupt as stop:
        stop.add_note("what was tried")
        raise
    finally:
        if len(kept) > len(found.tried):
            keep(file, msgspec.json.encode(_KeptWays(tuple((*key, way) for key, way in kept.items()))))


def cached_answer(
    scenario: Scenario,
    result: ScenarioResult,
    types: PolicyTypes,
    found: Callable[[Way], object] = lambda _: None,
    limit: TimeLimit | None = None,
    deadline: Deadline = NEVER,
) -> Answer:
    """Return the answer as `answer`, from the user's cache where the same was answered before by the same code.

    Where other policies were asked about, what was tried then is not tried again. With a limit, what was not tried then
    is tried now, as much as takes so long and begins before the deadline. What was tried until an interrupt is kept.
    """
    file = _file(hashlib.sha256(repr((_digest(scenario), scenario.policies)).encode()).hexdigest()[:20])
    answered = _read(file, _KeptAnswer)
    known = answered.answer
    if not known.ways or (limit and not answered.complete):
        operations = int(limit.seconds * PER_S) if limit else OPERATIONS
        with kept_ways(scenario) as kept:
            budget = ReplayBudget(operations, dict(answered.tried), kept=kept, deadline=deadline)
            try:
                known = answer(scenario, result, types, found, budget)
            except KeyboardInterrupt:
                keep(file, msgspec.json.encode(_KeptAnswer(answered.answer, tried=tuple(budget.known.items()))))
                raise
        keep(file, msgspec.json.encode(_KeptAnswer(known, budget.sufficed, tuple(budget.known.items()))))
    part_size = result.workload.part_size
    if any(way.iteration_s and way.batch_size != part_size and not way.loop.changes for way in known.ways):
        # Results say how other batches followed from the captures.
        assert scenario.captured is not None, "the scenario is of a captured model"
        scenario.captured.find_line()
    return known


def _file(digest: str) -> Path:
    return user_cache("answers") / f"{digest}.json"


def _read(file: Path, kind: type[_Kept]) -> _Kept:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return kind()


def _digest(scenario: Scenario) -> str:
    """Return a digest of all that decides an answer but policies: the captures, the machines and the code."""
    workload, captured = scenario.workload, scenario.captured
    assert captured is not None, "its workload was captured"
    assert isinstance(workload, CapturedWorkload), "only captured models are answered for"
    # Of the model there is the capture itself.
    sources = [each for each in scenario.sources if each not in captured.sources]
    parts = (
        msgspec.json.encode(workload.captured),
        repr((sources, scenario.memory_model, scenario.execution)).encode(),
        repr((scenario.server, scenario.gpus, scenario.gradients, scenario.pinned_memory)).encode(),
        repr((captured.can_be_of_any_batch, captured.can_be_in_any_loop)).encode(),
        *_code(),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:20]


@cache
def _code() -> tuple[bytes, ...]:
    """Return digests of our code and of the machines."""
    code = sorted((Path(__file__).parents[1]).rglob("*.py"))
    files = *code, *sorted(shipped_folder(PROFILES).iterdir())
    return tuple(hashlib.sha256(each.read_bytes()).digest() for each in files)
