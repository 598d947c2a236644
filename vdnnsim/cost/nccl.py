"""NCCL's tuning model: latency and rate of each of its algorithms, by protocol.

    time = latency of the algorithm's steps + bytes over the busiest link / rate of the protocol

Simple moves bytes at the rate of the links and synchronizes by memory fences; LL and LL128 send flags with the data,
which lowers latency and rate. NVLS lets NVSwitch add up what all GPUs of a host send; in NVLSTree hosts exchange these
sums along a tree.

Source: NVIDIA/nccl at 1fc949c50bbd7e31fb27343def456d8d48993a90, src/tuning: `ncclTunerConstantsDefaults`,
`treeCorrectionFactor` and `isLL128Enabled` (cost_model.cc), `ncclTuningRingModelInit` (ring.cc),
`ncclTuningTreeModelInit` (tree.cc), `ncclTuningNvlsModelInit` (nvls.cc), `ncclTuningGetNsteps` (tuning_general.cc).

Assumptions:

- Peer links and fabrics are NVLink, the tree is PCIe. LL128 needs NVLink and a GPU of compute capability 7.0 or more,
  which a profile does not state; NVSwitch has no older GPUs, and on peer links LL128 is left out.
- The limit of LL depends on the generation, too: it is that of the first whose ring is as fast as this one.
- Limits by channel never bind: NCCL opens as many channels as fill the links. Hosts have Intel's processors, with GPUs
  of compute capability 8.0 or more; AMD's post to the network in 2 us, not 1.
- The tuning model says of NVLS that it moves twice the bytes of a ring, which no machine reaches. Here every GPU sends
  its own data and one nth of the sums, and receives as much, at the efficiency that the model gives NVLS on Hopper.
- A send, and an all-to-all, which NCCL makes of sends, take one step of a ring.
- Rings alone gather and scatter: NVLS is slower there with eight GPUs, PAT is for one GPU a host.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

from vdnnsim.dnn.collective import CollectiveKind


class Wire(Enum):
    """Links of a group within a host."""

    NVSWITCH = "NVSwitch"
    NVLINK = "NVLink"
    PCIE = "PCIe"


class Protocol(Enum):
    """Protocols of NCCL."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


class Algorithm(Enum):
    """Algorithms of NCCL; the sends of an all-to-all are one, too."""

    RING = "ring"
    TREE = "tree"
    NVLS = "NVLS"
    NVLS_TREE = "NVLSTree"
    SENDS = "sends"


_US: Final = 1e-6
_BASE_US: Final = {
    Algorithm.RING: {Protocol.LL: 6.6, Protocol.LL128: 14.0, Protocol.SIMPLE: 8.4},
    Algorithm.TREE: {Protocol.LL: 6.8, Protocol.LL128: 14.0, Protocol.SIMPLE: 8.4},
}
_STEP_US: Final = {
    (Algorithm.RING, True): {Protocol.LL: 0.6, Protocol.LL128: 1.9, Protocol.SIMPLE: 3.4},
    (Algorithm.RING, False): {Protocol.LL: 1.0, Protocol.LL128: 2.5, Protocol.SIMPLE: 5.7},
    (Algorithm.TREE, True): {Protocol.LL: 0.6, Protocol.LL128: 1.25, Protocol.SIMPLE: 4.0},
    (Algorithm.TREE, False): {Protocol.LL: 1.0, Protocol.LL128: 1.9, Protocol.SIMPLE: 4.0},
}
"""Within a host, over NVLink or not."""
_NETWORK_STEP_US: Final = {
    Algorithm.RING: {Protocol.LL: 2.7, Protocol.LL128: 4.0, Protocol.SIMPLE: 14.0},
    Algorithm.TREE: {Protocol.LL: 5.0, Protocol.LL128: 8.5, Protocol.SIMPLE: 14.0},
}
_POST_US: Final = {Protocol.LL: 1.0, Protocol.LL128: 1.0, Protocol.SIMPLE: 3.0}
"""To post to the network: no step of a ring over several hosts is shorter."""
_NVLS_US: Final = 25.0
_NVLS_TREE_STEP_US: Final = 20.9
NVLS_CHANNELS: Final = 16
NVLS_SHARE: Final = 0.85 * (NVLS_CHANNELS - 1) / NVLS_CHANNELS
"""What NVLS reaches of the rate of a port: its efficiency on Hopper, with one of its channels taken off."""
_PLATEAU: Final = 1.4
"""Factor of the latency of a ring over several hosts under Simple, once every channel has 64 B for each GPU."""
_PLATEAU_BYTES: Final = 16 * 64
_SHARES: Final = {
    Algorithm.RING: {Protocol.LL: 0.5, Protocol.LL128: 0.92, Protocol.SIMPLE: 1.0},
    Algorithm.TREE: {Protocol.LL: 0.92 / 3.8, Protocol.LL128: 0.92 * 120 / 128, Protocol.SIMPLE: 0.92},
}
_LL_LIMITS: Final = ((150e9, 39e9), (300e9, 87.7e9), (450e9, 141e9), (math.inf, 282e9))
"""Within a host, by the rate of a ring, the limit of LL, both in bytes per second."""
_LL_NETWORK_LIMITS: Final = {2: 39e9, 3: 20.4e9}
"""Over two hosts, and over more."""
_TREE_CORRECTION: Final = {
    Protocol.LL: "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1",
    Protocol.LL128: "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1",
    Protocol.SIMPLE: ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9",
}
"""Of the rate of a tree, by the logarithm of the bytes over 64."""


@dataclass(frozen=True, slots=True)
class Group:
    """The GPUs of a collective.

    Attributes:
        hosts: over how many they are spread, as many on each.
        multicast: whether NVSwitch adds up.
        network_s: latency of a network card; 0 within one host.
    """

    ranks: int
    hosts: int
    wire: Wire
    multicast: bool
    network_s: float

    @property
    def local(self) -> int:
        """How many of them are on one host."""
        return self.ranks // self.hosts


@dataclass(frozen=True, slots=True)
class Method:
    """An algorithm with its protocol."""

    algorithm: Algorithm
    protocol: Protocol = Protocol.SIMPLE

    @property
    def name(self) -> str:
        """As NCCL prints it."""
        return f"{self.algorithm.value}/{self.protocol.value}"

    def latency_s(self, kind: CollectiveKind, group: Group, nbytes: int) -> float:
        """Return the seconds of a collective of a group beyond its bytes."""
        match self.algorithm:
            case Algorithm.NVLS:
                return _NVLS_US * _US
            case Algorithm.NVLS_TREE:
                return (_NVLS_US + 2 * math.log2(group.hosts) * _NVLS_TREE_STEP_US) * _US + (
                    4 * math.log2(group.hosts) * group.network_s
                )
            case Algorithm.TREE:
                depth = 2 * math.floor(math.log2(group.hosts))
                return self._base_s + 2 * (group.local - 1) * self._step_s(group) + depth * self._network_s(group)
            case _:
                return self._base_s + self._ring_s(kind, group, nbytes)

    def rate(self, bytes_per_s: float, part: float, group: Group, nbytes: int) -> float:
        """Return what it makes of a link that carries so many bytes per second, and a part of what a ring moves."""
        if self.algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE):
            return bytes_per_s
        rate = bytes_per_s * _SHARES[self._table][self.protocol]
        if self.protocol is Protocol.LL:
            within = next(limit for fastest, limit in _LL_LIMITS if bytes_per_s <= fastest * part)
            rate = min(rate, part * (within if group.hosts == 1 else _LL_NETWORK_LIMITS[min(group.hosts, 3)]))
        return rate * self._correction(nbytes)

    @property
    def _table(self) -> Algorithm:
        return Algorithm.TREE if self.algorithm is Algorithm.TREE else Algorithm.RING

    @property
    def _base_s(self) -> float:
        return _BASE_US[self._table][self.protocol] * _US

    def _step_s(self, group: Group) -> float:
        return _STEP_US[self._table, group.wire is not Wire.PCIE][self.protocol] * _US

    def _network_s(self, group: Group) -> float:
        """Return the seconds of a step to another host; Simple waits for a flush as well."""
        alone = group.local == 1 or self.algorithm is Algorithm.TREE
        step_us = _NETWORK_STEP_US[Algorithm.TREE if alone else Algorithm.RING][self.protocol]
        return step_us * _US + (2 if self.protocol is Protocol.SIMPLE else 1) * group.network_s

    def _ring_s(self, kind: CollectiveKind, group: Group, nbytes: int) -> float:
        within_s, network_s = self._step_s(group), self._network_s(group)
        steps = ring_steps(kind, group.ranks)
        if group.hosts == 1:
            return steps * within_s
        crossing = min(steps, ring_steps(kind, group.hosts))
        seconds = (steps - crossing) * max(within_s, _POST_US[self.protocol] * _US) + crossing * network_s
        plateau = kind is CollectiveKind.ALL_REDUCE and self.protocol is Protocol.SIMPLE
        return seconds * (_PLATEAU if plateau and nbytes >= _PLATEAU_BYTES * group.ranks else 1)

    def _correction(self, nbytes: int) -> float:
        if self.algorithm is not Algorithm.TREE:
            return 1.0
        factors = _TREE_CORRECTION[self.protocol].split()
        return float(factors[min(max(0, (nbytes >> 6).bit_length() - 1), len(factors) - 1)])


def ring_steps(kind: CollectiveKind, ranks: int) -> int:
    """Return how many times a part moves on in a ring; data that follow each other through a ring take one step."""
    if kind is CollectiveKind.ALL_REDUCE:
        return 2 * (ranks - 1)
    return ranks - 1 if kind in (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER) else 1


def methods(kind: CollectiveKind, group: Group) -> tuple[Method, ...]:
    protocols = tuple(Protocol) if group.wire is Wire.NVSWITCH else (Protocol.LL, Protocol.SIMPLE)
    if kind in (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND, CollectiveKind.RECEIVE):
        return tuple(Method(Algorithm.SENDS, each) for each in (Protocol.LL, Protocol.SIMPLE))
    found = [Method(Algorithm.RING, each) for each in protocols]
    if kind is CollectiveKind.ALL_REDUCE:
        if group.hosts > 1:
            found += [Method(Algorithm.TREE, each) for each in protocols]
        if group.multicast and group.local > 1:
            found.append(Method(Algorithm.NVLS if group.hosts == 1 else Algorithm.NVLS_TREE))
    return tuple(found)
