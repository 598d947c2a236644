"""Traces of random scenarios break no rule; and traces that were falsified break each."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.referee import broken, judged, lost, raced, readers
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.experiment import run_scenario
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.report.run.perfetto import perfetto_text
from vdnnsim.scenario.scenario import Scenario

Falsify = Callable[[list[Any]], None]
SCENARIOS = 15
RACES = 6


def test_no_trace_breaks_a_rule() -> None:
    """`python -m tests.hostile.referee 2000` draws more."""
    for seed in range(SCENARIOS):
        words, found = judged(seed)
        assert found == [], f"seed {seed}: {words}"


def test_nothing_is_slower_on_a_better_machine() -> None:
    """Nor fits it there no longer; a replay of a static policy is a sum of maxima of what only becomes less."""
    for seed in range(RACES):
        words, found = raced(seed)
        assert found == [], f"seed {seed}: {words}"


def test_a_slower_trace_is_found() -> None:
    text, _ = trace()
    content = json.loads(text)
    shift(content["traceEvents"], 1)
    content["otherData"]["fits"] = False
    told = list(lost("memory", text, json.dumps(content)))
    assert [each.split(":")[0] for each in told] == ["more memory", "more memory"]
    assert "in place of" in told[0]
    assert told[1].endswith("it fits no longer")
    assert list(lost("memory", json.dumps(content), text)) == []


@cache
def trace() -> tuple[str, Any]:
    """AlexNet under vdnn_all, which offloads every map that backward reads, and who reads which map."""
    result = run_scenario(
        Scenario(
            name="alexnet",
            workload=Workload(build_network("alexnet"), 32),
            server=read_profile(find_profile("titan_x_maxwell", Path())),
            policies=(resolve_policy("vdnn_all(m)", known_policies()),),
            memory_model=MemoryModel.IDEAL,
            pinned_memory=PinnedMemory.ARENA,
            sources=(),
        )
    )
    return perfetto_text(result, result.by_policy[0]), readers(result)


def of(events: list[Any], category: str) -> list[Any]:
    return [each for each in events if each.get("cat") == category]


def shift(events: list[Any], microseconds: float) -> None:
    for each in events:
        if "ts" in each:
            each["ts"] += microseconds


@pytest.mark.parametrize(
    ("falsify", "what"),
    [
        (lambda events: of(events, "forward")[0].update(dur=1e6), "overlap on stream 1"),
        (lambda events: shift(of(events, "prefetch"), 1e9), "begins before "),
        (lambda events: shift(of(events, "offload"), -1e9), "leaves before it is made"),
        (lambda events: shift(of(events, "offload"), 1e9), "was sent before 0 times"),
        (lambda events: of(events, "prefetch")[0]["args"].update(bytes=1), "comes back with 1 B of "),
        (lambda events: events[-1]["args"].update(total=2**40), "B are in use of 12884901888 B"),
        (lambda events: events[-1]["args"].update(total=2**30), "B are in use at the end, but "),
        (lambda events: events[-1]["args"].update(total=-1), "-1 B are in use"),
    ],
)
def test_what_is_false_is_found(falsify: Falsify, what: str) -> None:
    text, readers_of = trace()
    assert list(broken(text, readers_of)) == []
    content = json.loads(text)
    falsify(content["traceEvents"])
    assert any(what in each for each in broken(json.dumps(content), readers_of))
