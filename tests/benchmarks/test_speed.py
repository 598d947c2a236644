"""Speed, as ratios within one run: `make bench`. Absolute times are printed, for they say nothing on another machine.

Each figure is the best of several runs, for a second process may share the core.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import simpy

from tests.benchmarks.timing import ROOT, best_s, simulator_of
from vdnnsim.engine.simulate import simulate
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.interface import Setting
from vdnnsim.policies.layrub import LayrubHybrid
from vdnnsim.policies.vdnn import VdnnAll

pytestmark = pytest.mark.benchmark


def replay_of(
    network: str, algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL
) -> tuple[Callable[[], object], int, int]:
    """A replay of vdnn_all with batch 32, its number of operations and of layers."""
    simulator = simulator_of("titan_x_maxwell", network)
    workload, server = simulator.workload, simulator.server
    plan = VdnnAll(algorithms=algorithms).plan(Setting(workload, simulator.cost_model, simulator.limits, simulator))

    def work() -> object:
        placement = place_plan(plan, simulator.limits)
        assert isinstance(placement, Placement)
        return simulate(plan, simulator.cost_model, server, placement, PinnedMemory.ARENA)

    return work, len(plan.operations), len(workload.graph.layers)


def bare_simpy(operations: int) -> None:
    """Two streams that execute timeouts, each taken from a Store and signalled by an event: what SimPy itself costs."""
    env = simpy.Environment()
    stores = [simpy.Store(env), simpy.Store(env)]

    def stream(store: simpy.Store) -> simpy.events.ProcessGenerator:
        while True:
            done = yield store.get()
            yield env.timeout(1.0)
            done.succeed()

    def host() -> simpy.events.ProcessGenerator:
        events = []
        for number in range(operations):
            events.append(env.event())
            yield stores[number % 2].put(events[-1])
        yield env.all_of(events)

    for store in stores:
        env.process(stream(store))
    env.run(until=env.process(host()))


def test_a_replay_costs_at_most_three_times_what_simpy_itself_does() -> None:
    work, operations, layers = replay_of("vgg416")

    replay_s, bare_s = best_s(work), best_s(lambda: bare_simpy(operations))

    sys.stdout.write(
        f"\nvgg416, vdnn_all(p): {operations} operations in {replay_s:.3f} s = {replay_s / layers * 1000:.3f} s per "
        f"thousand layers; bare SimPy {bare_s:.3f} s, ratio {replay_s / bare_s:.2f}\n"
    )
    assert replay_s <= 3 * bare_s


def test_replay_time_grows_with_layers() -> None:
    """VGG-416 has 3.6 times the CONV layers of VGG-116 and may take at most 4.2 times as long."""
    small, large = best_s(replay_of("vgg116")[0]), best_s(replay_of("vgg416")[0])

    sys.stdout.write(f"\nvgg116 {small:.4f} s, vgg416 {large:.4f} s, ratio {large / small:.2f}\n")
    assert large <= 4.2 * small


def test_a_replay_of_vgg16_runs_490_operations() -> None:
    """The work that is timed above, counted on VGG-16 under all(m), where no kernel has a workspace.

    W and dW of 19 layers are allocated and released: 76. Forward: 26 maps allocated, 43 kernels, 21 offloads with
    record, wait, synchronization and release, and the logits released: 26 + 43 + 105 + 1 = 175. Backward: 42 data
    gradients and 19 weight gradients, 21 prefetches with allocation, record, wait and synchronization, 24 gradient
    maps allocated and released, 25 maps released: 61 + 105 + 48 + 25 = 239. Together 490.
    """
    assert replay_of("vgg16", Algorithms.MEMORY_OPTIMAL)[1] == 490


def test_the_main_job(tmp_path: Path) -> None:
    """`vdnnsim run scenarios/vgg416.yaml`: seven policies, pictures and traces; printed, with the memory it takes."""
    command = [sys.executable, "-c", "from vdnnsim.cli import main; main()", "run", "scenarios/vgg416.yaml"]

    run_s = best_s(
        lambda: subprocess.run([*command, "--out", str(tmp_path / "out")], cwd=ROOT, check=True, capture_output=True), 3
    )

    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    sys.stdout.write(f"\nvdnnsim run scenarios/vgg416.yaml: {run_s:.2f} s, {peak_kib / 1024:.0f} MiB\n")
    assert peak_kib * 1024 < 400e6


def test_resnet1517_under_layrub_hybrid_replays_in_under_3_s() -> None:
    """Planned, checked, placed and replayed: 100,000 operations, in seconds of this process."""
    simulator = simulator_of("k40m", "resnet1517")

    def work() -> None:
        plan = LayrubHybrid().plan(simulator.setting())
        check_plan(plan)
        placement = place_plan(plan, simulator.limits)
        assert isinstance(placement, Placement)
        simulate(plan, simulator.cost_model, simulator.server, placement, PinnedMemory.ARENA)

    took_s = best_s(work, runs=3, clock=time.process_time)
    sys.stderr.write(f"\nresnet1517 under layrub_hybrid: {took_s:.2f} s\n")
    assert took_s < 3


def test_help_takes_a_few_times_what_python_takes_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    command = Path(sys.executable).with_name("vdnnsim")
    help_s = best_s(lambda: subprocess.run([command, "--help"], capture_output=True, check=True))
    bare_s = best_s(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))

    with capsys.disabled():
        sys.stdout.write(f"\nvdnnsim --help: {help_s:.3f} s, {help_s / bare_s:.1f} times Python's own start\n")
    assert help_s < 10 * bare_s
