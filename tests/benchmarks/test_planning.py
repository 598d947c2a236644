"""Speed of the planner, in seconds of this process and as growth with layers within one run: `make bench`.

Growth is of the best of several runs. Its networks are VGG-16 with as many CONV layers more in each of its five groups,
32 images each, on a Titan X from which most of their maps must leave.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest

from tests.benchmarks.timing import best_s
from tests.machines import shipped_server
from vdnnsim.cost.transfer import HostCopies
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks import build_network, gpt2
from vdnnsim.dnn.networks.vgg import vgg_paper
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.copies import Direction
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.planning.fluid_bound import Links, fluid_optimum, stages_of
from vdnnsim.planning.problem import problem_of
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.schedule import iteration
from vdnnsim.policies.optimal import Optimal
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import GIB

pytestmark = pytest.mark.benchmark

MEMORY_GIB = {516: 8.0, 1016: 14.0}
"""Of the GPU by CONV layers."""
HOST_GIB = 512


def on(hardware: str, workload: Workload, memory_gib: float) -> Simulator:
    server = shipped_server(hardware)
    gpu = replace(server.gpu, memory_bytes=int(memory_gib * GIB))
    roomy = replace(server, gpu=gpu, host=replace(server.host, memory_bytes=HOST_GIB * GIB))
    machine = Simulator.of(workload, roomy, MemoryModel.IDEAL, PinnedMemory.ARENA)
    machine.cost_model.table(workload)  # built here, not while a plan is timed
    return machine


@cache
def deep(convolutions: int) -> Simulator:
    return on("titan_x_maxwell", Workload(vgg_paper(convolutions), 32), MEMORY_GIB[convolutions])


def bound(machine: Simulator) -> float:
    """What no schedule of the order is faster than, from the network on."""
    workload, limits, copies = machine.workload, machine.limits, HostCopies(machine.server)
    problem = problem_of(iteration(workload), workload, machine.costs, limits.device_bytes, limits.granule_bytes)
    links = Links(copies.best_bytes_per_s(Direction.D2H), copies.best_bytes_per_s(Direction.H2D))
    return fluid_optimum(stages_of(problem, links, limits.host_bytes), links).seconds


def plan(machine: Simulator) -> None:
    assert isinstance(machine.place(Optimal(recompute=False).plan(machine.setting())), Placement)


@pytest.mark.parametrize(("name", "work", "limit_s"), [("bound", bound, 1.0), ("plan", plan, 10.0)])
def test_a_thousand_layers(name: str, work: Callable[[Simulator], object], limit_s: float) -> None:
    """A bound takes less than 1 s, a plan less than 10 s; twice the layers take at most five times as long."""
    half_s, whole_s = (best_s(partial(work, deep(layers)), runs=3, clock=time.process_time) for layers in MEMORY_GIB)

    sys.stdout.write(f"\n{name} of VGG-516 {half_s:.2f} s, of VGG-1016 {whole_s:.2f} s, ratio {whole_s / half_s:.1f}\n")
    assert whole_s <= 5 * half_s
    assert whole_s < limit_s


@pytest.mark.parametrize(
    ("name", "network", "batch_size", "hardware", "memory_gib"),
    [
        ("ResNet-1517", lambda: build_network("resnet1517"), 32, "titan_x_maxwell", 12),
        ("GPT-2 of 96 blocks", gpt2.gpt2_small, 16, "a100_80gb", 40),
    ],
)
def test_a_minute_is_enough(
    name: str,
    network: Callable[[], LayerGraph],
    batch_size: int,
    hardware: str,
    memory_gib: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deep networks with branches, without recomputation."""
    monkeypatch.setattr(gpt2, "_BLOCKS", 96)
    machine = on(hardware, Workload(network(), batch_size), memory_gib)
    begin = time.process_time()

    plan(machine)

    took_s = time.process_time() - begin
    sys.stdout.write(f"\nplan of {name} {took_s:.1f} s\n")
    assert took_s < 60
