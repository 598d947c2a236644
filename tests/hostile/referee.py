"""Checks of invariants of any iteration on written traces, independent of the engine.

`python -m tests.hostile.referee 2000` draws so many valid scenarios, replays each, and prints broken invariants.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import AdjustedCosts, KernelCost
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Gpu
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.interface import DecidedBy
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.report.run.perfetto import perfetto_text
from vdnnsim.scenario.experiment import run_scenario, simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.points.server_figures import with_figures
from vdnnsim.units import GIB, MIB, ElementType

_US: Final = 0.0015
"""Ends of slices are rounded to nanoseconds."""
_MEMORY, _COMMUNICATION = 2, 4
"""Streams of a GPU."""
_NETWORKS: Final = ("tiny_linear", "tiny_forked", "tiny_residual", "lenet", "alexnet", "cifar10_quick", "resnet18")
_POLICIES: Final = tuple(name for name in known_policies() if name not in {"vdnn_dyn", "staggered_swap"})
_STATIC: Final = tuple(
    name for name in _POLICIES if resolve_policy(name, known_policies()).decided_by is DecidedBy.COSTS
)
_MACHINES: Final = ("titan_x_maxwell", "rtx_4090", "p100_x2", "p100_x4")
_LARGEST: Final = 64


@dataclass(frozen=True)
class Copy:
    """A copy of a buffer, in microseconds."""

    begin: float
    end: float
    nbytes: int


def broken(text: str, saved_for: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield broken invariants of the text of a trace; `saved_for` has by map the layers whose backward reads it."""
    content = json.loads(text)
    slices, counters = defaultdict[tuple[int, int], list[Any]](list), defaultdict[int, list[tuple[float, int]]](list)
    for event in content["traceEvents"]:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append(event)
        elif event["ph"] == "C" and event["name"] == "memory in use (bytes)":
            counters[event["pid"]].append((event["ts"], event["args"]["total"]))
    for (gpu, stream), events in slices.items():
        events.sort(key=lambda each: (each["ts"], each["dur"]))
        for one, other in pairwise(events):
            if other["ts"] < one["ts"] + one["dur"] - _US:
                yield f"GPU {gpu}: {one['name']} and {other['name']} overlap on stream {stream}"
    for gpu, levels in counters.items():
        yield from _levels(gpu, [total for _, total in levels], content["otherData"])
        yield from _copies(gpu, slices[gpu, 1], slices[gpu, 2], saved_for)


def _levels(gpu: int, totals: list[int], about: Mapping[str, Any]) -> Iterator[str]:
    if about["fits"] and max(totals) > about["gpu_memory_bytes"]:
        yield f"GPU {gpu}: {max(totals)} B are in use of {about['gpu_memory_bytes']} B"
    if min(totals) < 0:
        yield f"GPU {gpu}: {min(totals)} B are in use"
    if totals[-1] != min(totals):
        yield f"GPU {gpu}: {totals[-1]} B are in use at the end, but {min(totals)} B once before"


def _copies(gpu: int, kernels: list[Any], moved: list[Any], saved_for: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Check the order of copies and kernels of each buffer that is copied whole."""
    sent, back = defaultdict[str, list[Copy]](list), defaultdict[str, list[Copy]](list)
    for event in moved:
        what = _subject(event)
        copy = Copy(event["ts"], event["ts"] + event["dur"], event["args"]["bytes"])
        (sent if event["cat"] == "offload" else back)[what].append(copy)
    for what, copies in back.items():
        for number, copy in enumerate(copies):
            before = [each for each in sent[what] if each.end <= copy.begin + _US]
            if not before:
                yield f"GPU {gpu}: {what} is prefetched {number + 1} times and was offloaded before {len(before)} times"
            elif before[-1].nbytes != copy.nbytes:
                yield f"GPU {gpu}: {what} is prefetched with {copy.nbytes} B of {before[-1].nbytes} B"
    made = {_subject(each): each for each in kernels if each["cat"] == "forward"}
    for what, copies in sent.items():
        if what in made and copies[0].begin < made[what]["ts"] + made[what]["dur"] - _US:
            yield f"GPU {gpu}: {what} is offloaded before it is computed"
        if what not in back:
            continue
        reading = [
            each for each in kernels if each["cat"].startswith("backward") and _subject(each) in saved_for.get(what, ())
        ]
        # One kernel of a layer reads it: the weight gradient of a convolution, not its data gradient.
        last = {_subject(each): each for each in reading}
        for each in last.values():
            if each["ts"] >= copies[0].end - _US and not any(one.end <= each["ts"] + _US for one in back[what]):
                yield f"GPU {gpu}: {each['name']} begins before {what} is prefetched"


def _subject(event: Mapping[str, Any]) -> str:
    """Return the layer of a kernel, or the map of a copy: X of `forward of X (fft)`, `offload of map X during ...`."""
    found = re.match(r".+? of (?:map )?(.+?)(?: (?:during|for) .*| \(.*\))?$", event["name"])
    assert found is not None
    return found[1]


def drawn(draw: Random) -> Scenario:
    """Draw a valid scenario; whether its policy has a plan is not known yet."""
    server = read_profile(find_profile(draw.choice(_MACHINES), Path()))
    figures = {"link.bandwidth": 10 ** draw.uniform(8, 12), "gpu.memory": 2 ** draw.uniform(22, 34)}
    server = with_figures(server, {key: round(value) for key, value in figures.items() if draw.random() < 0.5})
    there = 1 if server.topology is None else len(server.topology.gpus)
    gpus, mode = draw.randint(1, there), draw.choice((Mode.TRAINING, Mode.TRAINING, Mode.INFERENCE))
    training = mode is Mode.TRAINING
    return Scenario(
        name="drawn",
        workload=Workload(
            build_network(draw.choice(_NETWORKS)),
            draw.randint(1, _LARGEST),
            ElementType.FLOAT32,
            draw.choice(list(Optimizer)) if training else Optimizer.NONE,
            mode,
        ),
        server=server,
        policies=(resolve_policy(draw.choice(_POLICIES), known_policies()),),
        memory_model=draw.choice((MemoryModel.IDEAL, *MemoryModel)),
        pinned_memory=draw.choice(list(PinnedMemory)),
        sources=(),
        gpus=gpus,
        gradients=draw.choice(list(Aggregation)) if gpus > 1 and training else None,
    )


def judged(seed: int) -> tuple[str, list[str]]:
    """Return a scenario in words, and what its trace breaks; a scenario without a plan breaks nothing."""
    scenario = drawn(Random(f"referee {seed}"))  # noqa: S311  # equal draws each time
    try:
        result = run_scenario(scenario)
    except PolicyError:
        return _words(scenario), []
    return _words(scenario), list(broken(perfetto_text(result, result.by_policy[0]), readers(result)))


def raced(seed: int) -> tuple[str, list[str]]:
    """Return a scenario in words, and which improvements of its machine make it slower, or fit no longer.

    Its policy is static: it looks at kernel times alone, so that a better machine changes nothing of its plan. Two
    anomalies are allowed, and `test_referee` derives both: that of links in `lost`, and TensorFlow's, which takes less
    of some GPUs than of smaller ones (`given_to_tensorflow`).
    """
    draw = Random(f"race {seed}")  # noqa: S311  # equal draws each time
    scenario = replace(drawn(draw), policies=(resolve_policy(draw.choice(_STATIC), known_policies()),))
    server, factor = scenario.server, draw.uniform(1, 16)
    rates = {"link.h2d": server.link.h2d_bytes_per_s, "link.d2h": server.link.d2h_bytes_per_s}
    machines: dict[str, dict[str, float]] = {
        "bandwidth": {key: rate * factor for key, rate in rates.items()},
        "memory": {"gpu.memory": round(server.gpu.memory_bytes * factor)},
        "speed": {},
    }
    try:
        before, slower = run_scenario(scenario), []
        for what, figures in machines.items():
            better = replace(scenario, server=with_figures(server, figures))
            speed = factor if what == "speed" else 1.0
            simulator = simulator_of(better, AdjustedCosts(ServerCosts(server), partial(_faster, speed)))
            rows = simulator.run(scenario.policies[0], before.oracle)
            after = replace(before, server=better.server, results=tuple(rows))
            if scenario.memory_model is MemoryModel.TENSORFLOW and _is_given_less(server.gpu, better.server.gpu):
                continue
            slower += list(lost(what, *(perfetto_text(each, each.by_policy[0]) for each in (before, after))))
    except PolicyError:
        return _words(scenario), []
    return f"{_words(scenario)}, times {factor:.3g}", slower


def _faster(
    speed: float, _workload: object, _layer: object, _phase: object, options: tuple[KernelCost, ...]
) -> tuple[KernelCost, ...]:
    return tuple(each.retimed(lambda seconds: seconds / speed) for each in options)


def given_to_tensorflow(free_bytes: int) -> int:
    """Return what TensorFlow 1.12 takes of a GPU at most: what is free, less what it leaves to the system.

    All of it where that is more: MinSystemMemory and SingleVirtualDeviceMemoryLimit of its gpu_device.cc.
    """
    left_bytes = 225 * MIB if free_bytes < 2 * GIB else max(300 * MIB, free_bytes // 20)
    return free_bytes - left_bytes if left_bytes < free_bytes else free_bytes


def _is_given_less(*gpus: Gpu) -> bool:
    before, after = (given_to_tensorflow(gpu.memory_bytes - gpu.context_bytes) for gpu in gpus)
    return after < before


def lost(what: str, *texts: str) -> Iterator[str]:
    """Yield what is worse on a better machine, by the traces before and after.

    Copies that share links share their rates: one that begins earlier can delay another. All else takes no longer, so
    an iteration is longer by no more than its copies overlap.
    """
    before, after = map(json.loads, texts)
    ends = [max(each["ts"] + each["dur"] for each in of["traceEvents"] if each["ph"] == "X") for of in (before, after)]
    if ends[1] > ends[0] + _contended_us(*map(_moved, (before, after))) + _US:
        yield f"more {what}: {ends[1]} us in place of {ends[0]} us"
    if before["otherData"]["fits"] and not after["otherData"]["fits"]:
        yield f"more {what}: it no longer fits"


def _moved(content: Mapping[str, Any]) -> list[Any]:
    """Return the copies of memory and communication streams in an order that is the same of equal plans."""
    copies = [each for each in content["traceEvents"] if each["ph"] == "X" and each["tid"] in (_MEMORY, _COMMUNICATION)]
    return sorted(copies, key=lambda each: (each["pid"], each["tid"], each["ts"]))


def _contended_us(before: list[Any], after: list[Any]) -> float:
    """Return by how much copies are longer than before beside others; exchanges do not delay each other."""
    longer_us = 0.0
    for was, one in zip(before, after, strict=True):
        others = [each for each in after if each is not one and _MEMORY in (each["tid"], one["tid"])]
        beside = [min(each["ts"] + each["dur"], one["ts"] + one["dur"]) - max(each["ts"], one["ts"]) for each in others]
        longer_us += max(0, min(one["dur"] - was["dur"], sum(max(0, beside_us) for beside_us in beside)))
    return longer_us


def _words(scenario: Scenario) -> str:
    return (
        f"{scenario.workload.graph.name} ({scenario.workload.batch_size}), {scenario.workload.mode.value}, "
        f"{scenario.workload.optimizer.value}, {scenario.server.name} x {scenario.gpus}, {scenario.gradients}, "
        f"{scenario.memory_model.value}, {scenario.pinned_memory.value}, {scenario.policies[0].label}"
    )


def readers(result: ScenarioResult) -> Mapping[str, frozenset[str]]:
    """Return by the name of a map the layers whose backward reads it; nothing of superneurons.

    Its cache keeps what it has offloaded until memory is needed, and no trace shows until when.
    """
    if result.slowest[0].policy.startswith("superneurons"):
        return {}
    graph = result.slowest[0].trace.plan.workload.graph
    return {each.name: frozenset(graph.layers[reader].name for reader in each.saved_for) for each in graph.maps}


def main() -> None:
    """Judge scenarios, and exit with 3 where a trace breaks a rule."""
    count, violations = int(sys.argv[1]), 0
    for judge in (judged, raced):
        for seed in range(count):
            words, found = judge(seed)
            violations += len(found)
            for each in found[:3]:
                sys.stderr.write(f"{judge.__name__}, seed {seed}: {words}: {each}\n")
    sys.stdout.write(f"{count} scenarios, and as many on three better machines: {violations} violations\n")
    sys.exit(3 if violations else 0)


if __name__ == "__main__":
    main()
