"""NCCL's tuning model of an all-reduce around a ring within one node, by protocol.

    time = base latency + 2 (n - 1) latencies of a step + what each link carries / rate of the protocol

The protocol with the least time is taken, as in NCCL. Simple moves bytes at the rate of the ring and synchronizes by
memory fences; LL and LL128 send flags with the data, which lowers latency and rate.

Source: NVIDIA/nccl at 1fc949c50bbd7e31fb27343def456d8d48993a90, src/tuning/cost_model.cc (`ncclTunerConstantsDefaults`,
`isLL128Enabled`) and src/tuning/ring.cc (`ncclTuningRingModelInit`).

Assumptions:

- Peer links and fabrics are NVLink, the tree is PCIe, and a ring that crosses the tree anywhere is one over PCIe.
- LL128 needs NVLink and a GPU of compute capability 7.0 or more, which a profile does not state. NVSwitch has no older
  GPUs; on peer links LL128 is left out.
- The limit of LL depends on the generation, too. It is that of the first generation whose NVLinks carry the rate of the
  ring in one direction: Volta 150 GB/s, Ampere 300, Hopper 450, Blackwell 900.
- There is one ring, at the rate of the profile's slowest link while all send. NCCL makes as many rings as the links
  allow: of the four NVLinks of a P100 in a DGX-1 this sends over one (ResNet-18 with 16 images on each of eight,
  momentum: 25.8 ms, where links of four times the rate make it 24.7). And NCCL counts with a rate of its own for the
  NVLinks of each generation (src/graph/topo.h, `ncclTopoNVLinkBw`: 18 GB/s for one of a P100), not a measured one.
- A channel's limit under LL128 is left out: NCCL opens as many channels as it takes to fill NVLink.
- Trees, and the sums in NVSwitch (NVLS) that NCCL prefers for some sizes, are left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from vdnnsim.hardware.topology import Hop, Topology


class Wire(Enum):
    """Links of a ring."""

    NVSWITCH = "NVSwitch"
    NVLINK = "NVLink"
    PCIE = "PCIe"


class Protocol(Enum):
    """Protocols of NCCL."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


_BASE_S: Final = {Protocol.LL: 6.6e-6, Protocol.LL128: 14.0e-6, Protocol.SIMPLE: 8.4e-6}
_NVLINK_STEP_S: Final = {Protocol.LL: 0.6e-6, Protocol.LL128: 1.9e-6, Protocol.SIMPLE: 3.4e-6}
_PCIE_STEP_S: Final = {Protocol.LL: 1.0e-6, Protocol.LL128: 2.5e-6, Protocol.SIMPLE: 5.7e-6}
_LL_SHARE: Final = 0.5
_LL128_SHARE: Final = 0.92
_LL_LIMITS: Final = ((150e9, 39e9), (300e9, 87.7e9), (450e9, 141e9))
"""By the rate of a ring, the limit of LL, both in bytes per second; above the last it is twice as much."""


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of GPUs.

    Attributes:
        bytes_per_s: rate of its slowest link while all send at once.
    """

    gpus: int
    wire: Wire
    bytes_per_s: float

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """The protocols that NCCL chooses from."""
        if self.wire is Wire.NVSWITCH:
            return tuple(Protocol)
        return Protocol.LL, Protocol.SIMPLE

    def overhead_s(self, protocol: Protocol, nbytes: int) -> float:
        """Return the seconds of an all-reduce beyond nbytes over every link at the rate of the ring."""
        step_s = _PCIE_STEP_S if self.wire is Wire.PCIE else _NVLINK_STEP_S
        latency_s = _BASE_S[protocol] + 2 * (self.gpus - 1) * step_s[protocol]
        return latency_s + nbytes * (1 / self._rate(protocol) - 1 / self.bytes_per_s)

    def fastest(self, nbytes: int) -> Protocol:
        """Return the protocol with the least time for an all-reduce that sends nbytes over every link."""
        return min(self.protocols, key=lambda protocol: self.overhead_s(protocol, nbytes))

    def _rate(self, protocol: Protocol) -> float:
        match protocol:
            case Protocol.LL:
                limits = (limit for rate, limit in _LL_LIMITS if self.bytes_per_s <= rate)
                return min(_LL_SHARE * self.bytes_per_s, next(limits, 2 * _LL_LIMITS[-1][1]))
            case Protocol.LL128:
                return _LL128_SHARE * self.bytes_per_s
            case Protocol.SIMPLE:  # pragma: no branch
                return self.bytes_per_s


def wire_of(topology: Topology, paths: Iterable[tuple[Hop, ...]]) -> Wire:
    """Return the links of a ring over these paths."""
    crossed = {hop.link for path in paths for hop in path}
    fabric = {port.link.name for port in topology.ports}
    if crossed <= fabric:
        return Wire.NVSWITCH
    return Wire.NVLINK if crossed <= fabric | {peer.link.name for peer in topology.peers} else Wire.PCIE
