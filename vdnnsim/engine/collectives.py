"""Collectives of GPUs in simulated time: they begin when all simulated members have reached them, and share links.

A simulated GPU may stand for others that do the same at the same time: what it sends, they send, too, on the links of
the hosts that are simulated. Collectives take what NCCL makes of those links (`vdnnsim.cost.collectives`): a latency,
then bytes that flow beside all other copies.

Gradients of the papers' systems are summed by the host at the bandwidth of its memory, which copies share, or by a GPU
at the bandwidth of its DRAM, without slowing its kernels; n gradients are read and one is written. Exchanges of DDP lie
between copies of the gradients into their bucket and back.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import simpy

from vdnnsim.cost.collectives import Cluster
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Hop
from vdnnsim.plans.operations import Aggregation, AllReduce

Process = simpy.events.ProcessGenerator


class Collectives:
    """The collectives of one iteration.

    Attributes:
        cluster: all ranks.
        ranks: of each simulated GPU, those on the simulated hosts that it stands for, itself first.
    """

    def __init__(
        self,
        env: simpy.Environment,
        server: Server,
        interconnect: Interconnect,
        cluster: Cluster,
        ranks: Sequence[Sequence[int]],
    ) -> None:
        self._env = env
        self._topology = cluster.topology
        self._dram_bytes_per_s = server.gpu.dram_bytes_per_s
        self._links = interconnect
        self._cluster = cluster
        self._ranks = ranks
        self._gpus = len(ranks)
        self._of = {rank: number for number, ranks_of in enumerate(ranks) for rank in ranks_of}
        self._reached = Counter[tuple[object, ...]]()
        self._arrived = Counter[tuple[object, ...]]()
        self._done: defaultdict[tuple[object, ...], simpy.Event] = defaultdict(env.event)

    def communicate(self, gpu: int, collective: Collective) -> simpy.Event:
        """Join a collective; return the event of its end, the same for all members.

        Members are matched by the order in which they reach the collectives of their group, and a send with the receive
        at its other end.
        """
        groups = [self._cluster.group(rank, collective) for rank in self._ranks[gpu]]
        members = frozenset(self._of[rank] for group in groups for rank in group if rank in self._of)
        between = collective.is_point_to_point
        key = ("send", groups[0]) if between else (collective.ranks, collective.stride, members)
        self._reached[gpu, key] += 1
        number = (*key, self._reached[gpu, key])
        done = self._done[number]
        self._arrived[number] += 1
        if self._arrived[number] == len(members):
            everyone = sorted(rank for member in members for rank in self._ranks[member])
            self._env.process(self._by_nccl(collective, self._ranks[gpu] if between else everyone, done))
        return done

    def blocks(self, gpu: int, collective: Collective) -> int:
        """Return how many blocks NCCL's kernel of a collective has; those of sends, which are unknown, are left out."""
        if collective.is_point_to_point:
            return 0
        return self._cluster.blocks(collective, self._ranks[gpu], self._hosts)

    def join(self, all_reduce: AllReduce, nbytes: int) -> simpy.Event:
        """Join an exchange of nbytes of gradients; return the event of its end, the same for all GPUs."""
        number = ("gradients", all_reduce.collective)
        done = self._done[number]
        self._arrived[number] += 1
        if self._arrived[number] == self._gpus:
            self._env.process(self._run(all_reduce.aggregation, nbytes, done))
        return done

    def _by_nccl(self, collective: Collective, ranks: Sequence[int], done: simpy.Event) -> Process:
        yield from self._timed(collective, ranks)
        done.succeed()

    def _timed(self, collective: Collective, ranks: Iterable[int]) -> Process:
        timed = self._cluster.timed(collective, ranks, self._hosts)
        yield self._env.timeout(timed.latency_s)
        yield self._env.all_of([self._links.start(path, nbytes).done for path, nbytes in timed.flows])

    @cached_property
    def _hosts(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(rank // self._cluster.local for rank in self._of))

    def _run(self, aggregation: Aggregation, nbytes: int, done: simpy.Event) -> Process:
        match aggregation:  # pragma: no branch
            case Aggregation.CPU:
                yield from self._through_host(nbytes)
            case Aggregation.GPU:
                yield from self._through_first_gpu(nbytes)
            case Aggregation.RING:
                yield from self._around_ring(nbytes)
            case Aggregation.DDP | Aggregation.DDP_VIEWS:
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
        yield self._env.timeout(copied_s)
        all_reduce = Collective(CollectiveKind.ALL_REDUCE, nbytes, "", self._gpus)
        yield from self._timed(all_reduce, range(self._gpus))
        yield self._env.timeout(copied_s)

    @cached_property
    def _ring(self) -> list[tuple[Hop, ...]]:
        """The paths from each GPU to the next."""
        order = self._topology.rings(range(self._gpus))[0]
        return [self._topology.between(*pair) for pair in pairwise((*order, order[0]))]

    def _copy(self, paths: Iterable[tuple[Hop, ...]], nbytes: int) -> Process:
        """Run copies at once, and wait until all are done."""
        by_latency: dict[float, list[tuple[Hop, ...]]] = {}
        for path in paths:
            by_latency.setdefault(self._topology.latency_s(path), []).append(path)
        yield self._env.all_of([self._env.process(self._after(s, each, nbytes)) for s, each in by_latency.items()])

    def _after(self, latency_s: float, paths: list[tuple[Hop, ...]], nbytes: int) -> Process:
        yield self._env.timeout(latency_s)
        yield self._env.all_of([self._links.start(path, nbytes).done for path in paths])
