"""How long a kernel takes that is no convolution: the roofline.

    max(FLOPs / (arithmetic peak x fraction), bytes / (DRAM bandwidth x fraction)) + overhead

with the FLOPs and the compulsory traffic that the workload counts. FC, ATTENTION and RNN are matrix products. All else,
and every weight update, streams through memory.

Source: Williams, Waterman and Patterson, Roofline, Communications of the ACM 52(4), 2009.
Known limitations: the traffic is that of perfect caches. An RNN is timed as one product over all its steps, though each
step must wait for the one before it; short batches take longer.
"""

from typing import Final

from vdnnsim.cost.machine import Machine
from vdnnsim.dnn.layers import LayerKind, Phase

_PRODUCTS: Final = frozenset({LayerKind.FC, LayerKind.ATTENTION, LayerKind.RNN})


def roofline_s(machine: Machine, kind: LayerKind, phase: Phase, flop: int, nbytes: int) -> float:
    """Return the seconds of one phase of a layer that computes `flop` and moves `nbytes` of DRAM traffic."""
    p = machine.parameters
    is_product = kind in _PRODUCTS and phase is not Phase.UPDATE
    arithmetic_s = flop / (machine.flop_per_s * (p.product_flop_fraction if is_product else 1.0))
    return max(arithmetic_s, nbytes / (machine.dram_bytes_per_s * p.stream_dram_fraction)) + p.kernel_overhead_s
