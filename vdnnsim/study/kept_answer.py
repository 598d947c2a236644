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
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer import answer
from vdnnsim.study.effort import Effort


class _Kept(msgspec.Struct, frozen=True):
    """An answer, whether all was tried, and what was tried, also what the answer leaves out."""

    answer: Answer = Answer()
    complete: bool = False
    tried: tuple[tuple[Way, Way], ...] = ()


def kept_answer(
    scenario: Scenario, result: ScenarioResult, types: PolicyTypes, found: Callable[[Way], object] = lambda _: None
) -> Answer:
    """Return the answer as `answer`, from the user's cache where the same was answered before by the same code.

    What was not tried then is tried now.
    """
    file = user_cache("answers") / f"{_digest(scenario)}.json"
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=_Kept)
    except (OSError, msgspec.DecodeError):
        kept = _Kept()
    known = kept.answer
    if not kept.complete:
        effort = Effort(known=dict(kept.tried))
        known = answer(scenario, result, types, found, effort)
        keep(file, msgspec.json.encode(_Kept(known, effort.sufficed, tuple(effort.known.items()))))
    # Results say how other batches followed from the captures.
    assert scenario.captured is not None, "the scenario is of a captured model"
    for way in known.ways:
        if way.iteration_s and way.batch_size != result.workload.part_size:
            scenario.captured.workload(way.batch_size)
            break
    return known


def _digest(scenario: Scenario) -> str:
    """Return a digest of all that decides an answer: the captures, the machines and the code."""
    workload = scenario.workload
    assert scenario.captured is not None, "its workload was captured"
    assert isinstance(workload, CapturedWorkload), "only captured models are answered for"
    code = sorted((Path(__file__).parents[1]).rglob("*.py"))
    parts = (
        msgspec.json.encode(workload.captured),
        repr((scenario.sources, scenario.policies, scenario.memory_model, scenario.execution)).encode(),
        repr((scenario.server, scenario.gpus, scenario.gradients, scenario.pinned_memory)).encode(),
        repr((scenario.captured.can_be_of_any_batch, scenario.captured.can_be_in_any_loop)).encode(),
        *(each.read_bytes() for each in (*code, *sorted(shipped_folder(PROFILES).iterdir()))),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:20]
