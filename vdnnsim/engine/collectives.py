"""Collectives of GPUs in simulated time: they begin when every GPU has reached them, and their copies share links.

Sums are memory-bound: n gradients are read and one is written, by the host at the bandwidth of its memory, which copies
share, or by a GPU at the bandwidth of its DRAM, without slowing its kernels. Exchanges of DDP are timed as by NCCL
(`vdnnsim.hardware.nccl`), between copies of the gradients into their bucket and back.
"""

from collections.abc import Iterable
from functools import cached_property

import simpy

from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.hardware.nccl import Ring, wire_of
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Hop
from vdnnsim.plans.operations import Aggregation, AllReduce

Process = simpy.events.ProcessGenerator


class Collectives:
    """The exchanges of one iteration of all GPUs of a server."""

    def __init__(self, env: simpy.Environment, server: Server, interconnect: Interconnect, gpus: int) -> None:
        assert server.topology is not None
        self._env = env
        self._topology = server.topology
        self._dram_bytes_per_s = server.gpu.dram_bytes_per_s
        self._links = interconnect
        self._gpus = gpus
        self._arrived: dict[int, int] = {}
        self._done: dict[int, simpy.Event] = {}

    def join(self, all_reduce: AllReduce, nbytes: int) -> simpy.Event:
        """Join an exchange of nbytes; return the event of its end, the same for all GPUs."""
        number = all_reduce.collective
        done = self._done.setdefault(number, self._env.event())
        self._arrived[number] = self._arrived.get(number, 0) + 1
        if self._arrived[number] == self._gpus:
            self._env.process(self._run(all_reduce.aggregation, nbytes, done))
        return done

    def alike(self, collective: Collective, gpu: int) -> Process:  # noqa: ARG002 - every rank's ring is the same
        """Run a collective of a captured rank, which the other ranks of its group run at the same time.

        Around a ring each rank sends all but its own part once, in an all-reduce twice.
        """
        ranks, whole = collective.ranks, collective.nbytes
        sent = {
            CollectiveKind.ALL_REDUCE: 2 * whole * (ranks - 1) // ranks,
            CollectiveKind.BROADCAST: whole,
            CollectiveKind.SEND: whole,
            CollectiveKind.RECEIVE: whole,
        }.get(collective.kind, whole * (ranks - 1) // ranks)
        order = self._topology.ring(ranks)
        paths = [self._topology.between(*pair) for pair in zip(order, (*order[1:], order[0]), strict=True)]
        ring = Ring(ranks, wire_of(self._topology, paths), min(self._links.rates_alone(paths)))
        yield self._env.timeout(ring.overhead_s(ring.fastest(sent), sent))
        yield self._env.all_of([self._links.start(path, sent).done for path in paths])

    def _run(self, aggregation: Aggregation, nbytes: int, done: simpy.Event) -> Process:
        match aggregation:
            case Aggregation.CPU:
                yield from self._through_host(nbytes)
            case Aggregation.GPU:
                yield from self._through_first_gpu(nbytes)
            case Aggregation.RING:
                yield from self._around_ring(nbytes)
            case Aggregation.DDP | Aggregation.DDP_VIEWS:  # pragma: no branch
                yield from self._in_a_bucket(nbytes)
        done.succeed()

    def _through_host(self, nbytes: int) -> Process:
        everyone = range(self._gpus)
        yield from self._copy((self._topology.to_host(gpu) for gpu in everyone), nbytes)
        # The link below the root of the tree is host memory.
        memory = self._topology.from_host(0)[:1]
        yield self._links.start(memory, (self._gpus + 1) * nbytes).done
        yield from self._copy((self._topology.from_host(gpu) for gpu in everyone), nbytes)

    def _through_first_gpu(self, nbytes: int) -> Process:
        others = range(1, self._gpus)
        yield from self._copy((self._topology.between(gpu, 0) for gpu in others), nbytes)
        yield self._env.timeout((self._gpus + 1) * nbytes / self._dram_bytes_per_s)
        yield from self._copy((self._topology.between(0, gpu) for gpu in others), nbytes)

    def _around_ring(self, nbytes: int) -> Process:
        # Each step lasts as long as its slowest copy: one flow for all bytes to the neighbour takes as long as the
        # steps.
        ring = self._ring
        steps, part = 2 * (self._gpus - 1), -(-nbytes // self._gpus)
        yield self._env.timeout((steps - 1) * max(self._topology.latency_s(path) for path in ring))
        yield from self._copy(ring, steps * part)
        yield self._env.timeout((self._gpus - 1) * 3 * part / self._dram_bytes_per_s)

    def _in_a_bucket(self, nbytes: int) -> Process:
        # The copies into the bucket and back each read and write all bytes. NCCL's rates include its sums.
        copied_s = 2 * nbytes / self._dram_bytes_per_s
        sent = 2 * (self._gpus - 1) * -(-nbytes // self._gpus)
        ring = self._nccl_ring
        yield self._env.timeout(copied_s + ring.overhead_s(ring.fastest(sent), sent))
        yield self._env.all_of([self._links.start(path, sent).done for path in self._ring])
        yield self._env.timeout(copied_s)

    @cached_property
    def _nccl_ring(self) -> Ring:
        rate = min(self._links.rates_alone(self._ring))
        return Ring(self._gpus, wire_of(self._topology, self._ring), rate)

    @cached_property
    def _ring(self) -> list[tuple[Hop, ...]]:
        """The paths from each GPU to the next."""
        order = self._topology.ring(self._gpus)
        return [self._topology.between(*pair) for pair in zip(order, (*order[1:], order[0]), strict=True)]

    def _copy(self, paths: Iterable[tuple[Hop, ...]], nbytes: int) -> Process:
        """Run copies at once, and wait until all are done."""
        by_latency: dict[float, list[tuple[Hop, ...]]] = {}
        for path in paths:
            by_latency.setdefault(self._topology.latency_s(path), []).append(path)
        yield self._env.all_of([self._env.process(self._after(s, each, nbytes)) for s, each in by_latency.items()])

    def _after(self, latency_s: float, paths: list[tuple[Hop, ...]], nbytes: int) -> Process:
        yield self._env.timeout(latency_s)
        yield self._env.all_of([self._links.start(path, nbytes).done for path in paths])
