"""Answers to what makes a captured model fit, on a card without gaps."""

from dataclasses import replace

import msgspec

from tests.machines import shipped_profile
from tests.nested import changed
from vdnnsim.analysis.answer import Answer, Change, Way
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.step import BufferKind, Storage
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.report.document import Block
from vdnnsim.report.tables.answer import answer_notes, answer_table
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer import answer
from vdnnsim.study.replay_budget import ReplayBudget

MIB = 2**20


TYPES = known_policies()


def asked(model: CapturedModel, capacity: int, *policies: str) -> Scenario:
    """Return the scenario of a model on a card of so many bytes, whose memory has no gaps; by default `pytorch`."""
    profile = changed(shipped_profile("rtx_4090"), "server.gpu", memory_bytes=capacity, context_bytes=0)
    chosen = tuple(resolve_policy(each, TYPES) for each in policies or ("pytorch",))
    return replace(scenario_of(model, "x", profile, chosen), memory_model=MemoryModel.IDEAL)


def answered(scenario: Scenario, budget: ReplayBudget | None = None) -> tuple[ScenarioResult, Answer]:
    result = run_scenario(scenario, all_may_decline=True)
    found: list[Way] = []
    made = answer(scenario, result, TYPES, found.append, budget)
    assert made.ways == tuple(found)
    return replace(result, answer=made), made


def blocks_of(result: ScenarioResult) -> tuple[Block, ...]:
    return *answer_table(result), *answer_notes(result)


def of(made: Answer, change: Change, policy: str = "pytorch(p)") -> list[Way]:
    return [way for way in made.ways if way.change is change and way.policy == policy]


def with_storage(step: CapturedStep, kind: BufferKind, nbytes: int) -> CapturedStep:
    """Return a step with more given memory, which no operation touches."""
    storage = Storage("more", kind, nbytes, "float32", given=True)
    return msgspec.structs.replace(step, storages=(*step.storages, storage))
