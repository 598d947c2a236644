"""Traces of random scenarios break no rule; falsified traces break each."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import simpy
from simpy.events import ProcessGenerator

from tests.hostile.referee import broken, given_to_tensorflow, judged, lost, raced, readers
from tests.two_gpus import PEERED
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.topology import Hop
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.report.run.perfetto import perfetto_text
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.units import GIB, MIB

Falsify = Callable[[list[Any]], None]
SCENARIOS = 15
RACES = 6


def test_no_trace_breaks_a_rule() -> None:
    """`python -m tests.hostile.referee 2000` draws more."""
    for seed in range(SCENARIOS):
        words, found = judged(seed)
        assert found == [], f"seed {seed}: {words}"


def test_nothing_is_slower_on_a_better_machine() -> None:
    """Of the first 2,000 races three show an anomaly: 610 TensorFlow's, 982 and 1309 that of links."""
    for seed in (*range(RACES), 610, 982, 1309):
        words, found = raced(seed)
        assert found == [], f"seed {seed}: {words}"


def test_a_slower_trace_is_found() -> None:
    text, _ = trace()
    content = json.loads(text)
    shift(content["traceEvents"], 1)
    content["otherData"]["fits"] = False
    slower, unfit = lost("memory", text, json.dumps(content))
    assert "in place of" in slower
    assert unfit == "more memory: it no longer fits"
    assert list(lost("memory", json.dumps(content), text)) == []


def iteration(kernel_s: float) -> dict[str, Any]:
    """GPU 1 prefetches 20 B over links of 10 B/s and offloads them; behind a kernel GPU 0 prefetches 20 B as well."""
    env, events = simpy.Environment(), list[Any]()
    links = Interconnect(env, PEERED)

    def copies(gpu: int, *paths: tuple[Hop, ...]) -> ProcessGenerator:
        for path in paths:
            begin_s = env.now
            yield links.start(path, 20).done
            events.append({"ph": "X", "pid": gpu, "tid": 2, "ts": 1e6 * begin_s, "dur": 1e6 * (env.now - begin_s)})

    def behind_kernel() -> ProcessGenerator:
        yield env.timeout(kernel_s)
        yield from copies(0, PEERED.from_host(0))

    env.process(copies(1, PEERED.from_host(1), PEERED.to_host(1)))
    env.process(behind_kernel())
    env.run()
    return {"traceEvents": events, "otherData": {"fits": True}}


def test_a_faster_kernel_may_end_an_iteration_later() -> None:
    """The anomaly of links: both GPUs prefetch over the uplink that they share, and offload over its other direction.

    Behind a kernel of 2 s the second prefetch begins when the first ends, and nothing is shared: 4 s in all. Behind one
    of 1 s both have 5 B/s from then on: the first, with 10 B to go, ends at 3 s, and the offload at 5 s. Without the
    other prefetch beside it there is no reason for 3 s.
    """
    slow, fast = iteration(2.0), iteration(1.0)
    assert list(lost("speed", json.dumps(slow), json.dumps(fast))) == []
    for content in (slow, fast):
        content["traceEvents"] = [each for each in content["traceEvents"] if each["pid"] == 1]
    found = list(lost("speed", json.dumps(slow), json.dumps(fast)))
    assert found == ["more speed: 5000000.0 us in place of 4000000.0 us"]


def test_tensorflow_takes_less_of_some_gpus_than_of_smaller_ones() -> None:
    """It leaves nothing of 225 MiB to the system, 225 MiB of a byte more, and from 2 GiB on 300 MiB."""
    assert [given_to_tensorflow(free) for free in (225 * MIB, 225 * MIB + 1)] == [225 * MIB, 1]
    assert [given_to_tensorflow(free) // MIB for free in (2 * GIB - MIB, 2 * GIB)] == [1822, 1748]


@cache
def trace() -> tuple[str, Any]:
    """The trace of AlexNet under vdnn_all, which offloads all that backward reads, and the readers of each map."""
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
        (lambda events: shift(of(events, "offload"), -1e9), "is offloaded before it is computed"),
        (lambda events: shift(of(events, "offload"), 1e9), "was offloaded before 0 times"),
        (lambda events: of(events, "prefetch")[0]["args"].update(bytes=1), "is prefetched with 1 B of "),
        (lambda events: events[-1]["args"].update(total=2**40), "B are in use of 12884901888 B"),
        (lambda events: events[-1]["args"].update(total=2**30), "B are in use at the end, but "),
        (lambda events: events[-1]["args"].update(total=-1), "-1 B are in use"),
    ],
)
def test_falsified_traces_are_found(falsify: Falsify, what: str) -> None:
    text, readers_of = trace()
    assert list(broken(text, readers_of)) == []
    content = json.loads(text)
    falsify(content["traceEvents"])
    assert any(what in each for each in broken(json.dumps(content), readers_of))
