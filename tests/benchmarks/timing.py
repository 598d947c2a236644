"""The best of several runs of a piece of work, and simulators of networks on machines, for benchmarks."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.machines import shipped_server
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.scenario.simulator import Simulator

ROOT = Path(__file__).parents[2]


def best_s(
    work: Callable[[], object], runs: int = 5, repeats: int = 1, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Shortest of several runs, for a second process may share the core; by the piece of work."""
    times = []
    for _ in range(runs):
        begin = clock()
        for _ in range(repeats):
            work()
        times.append((clock() - begin) / repeats)
    return min(times)


def simulator_of(hardware: str, network: str, batch_size: int = 32, gpus: int = 1) -> Simulator:
    """A network on the machine of a profile, under the ideal memory model."""
    server = shipped_server(hardware)
    workload = Workload(build_network(network), batch_size)
    return Simulator.of(workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA, gpus=gpus)
