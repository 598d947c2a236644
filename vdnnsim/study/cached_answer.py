"""Answers in the user's cache, where the same was answered before by the same code."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from vdnnsim.analysis.answer import Answer, Way
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.files.packaged import PROFILES, shipped_folder
from vdnnsim.files.user_cache import keep, user_cache
from vdnnsim.planning.deadline import TimeLimit
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer import answer
from vdnnsim.study.replay_budget import OPERATIONS, PER_S, ReplayBudget


class _Kept(msgspec.Struct, frozen=True):
    """An answer, whether all was tried, and what was tried, also what the answer leaves out."""

    answer: Answer = Answer()
    complete: bool = False
    tried: tuple[tuple[Way, Way], ...] = ()


def cached_answer(
    scenario: Scenario,
    result: ScenarioResult,
    types: PolicyTypes,
    found: Callable[[Way], object] = lambda _: None,
    limit: TimeLimit | None = None,
) -> Answer:
    """Return the answer as `answer`, from the user's cache where the same was answered before by the same code.

    Where other policies were asked about, what was tried then is not tried again. With a limit, what was not tried then
    is tried now, as much as takes so long. What was tried until an interrupt is kept, and its exception says so.
    """
    model = _digest(scenario)
    policies = hashlib.sha256(repr((model, scenario.policies)).encode()).hexdigest()[:20]
    file, shared = (user_cache("answers") / f"{each}.json" for each in (policies, model))
    kept = _read(file)
    known = kept.answer
    if not known.ways or (limit and not kept.complete):
        operations = int(limit.seconds * PER_S) if limit else OPERATIONS
        budget = ReplayBudget(operations, dict(kept.tried), kept=dict(_read(shared).tried))
        try:
            known = answer(scenario, result, types, found, budget)
        except KeyboardInterrupt as stop:
            keep(file, msgspec.json.encode(_Kept(kept.answer, tried=tuple(budget.known.items()))))
            stop.add_note("what was tried")
            raise
        keep(file, msgspec.json.encode(_Kept(known, budget.sufficed, tuple(budget.known.items()))))
        keep(shared, msgspec.json.encode(_Kept(tried=tuple(budget.kept.items()))))
    part_size = result.workload.part_size
    if any(way.iteration_s and way.batch_size != part_size and not way.loop.changes for way in known.ways):
        # Results say how other batches followed from the captures.
        assert scenario.captured is not None, "the scenario is of a captured model"
        scenario.captured.find_line()
    return known


def _read(file: Path) -> _Kept:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        return _Kept()


def _digest(scenario: Scenario) -> str:
    """Return a digest of all that decides an answer but policies: the captures, the machines and the code."""
    workload = scenario.workload
    assert scenario.captured is not None, "its workload was captured"
    assert isinstance(workload, CapturedWorkload), "only captured models are answered for"
    code = sorted((Path(__file__).parents[1]).rglob("*.py"))
    parts = (
        msgspec.json.encode(workload.captured),
        repr((scenario.sources, scenario.memory_model, scenario.execution)).encode(),
        repr((scenario.server, scenario.gpus, scenario.gradients, scenario.pinned_memory)).encode(),
        repr((scenario.captured.can_be_of_any_batch, scenario.captured.can_be_in_any_loop)).encode(),
        *(each.read_bytes() for each in (*code, *sorted(shipped_folder(PROFILES).iterdir()))),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:20]
