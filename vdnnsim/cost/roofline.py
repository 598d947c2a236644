"""Kernel times of a machine without measurements: rooflines of its datasheet, times fractions below 1.

    max(FLOPs / (arithmetic peak x fraction), bytes / (DRAM bandwidth x fraction)) + launch overhead

A profile states in `cost_model` the overhead, and fractions by kind of operator and element type:

    cost_model:
      kind: roofline
      launch_overhead_s: {value: 5e-06, origin: assumed, source: "..."}
      flop_fraction: {...}                  # of every kernel
      conv_flop_fraction: {...}             # of one kind of operator, by its name in tables of kernels
      conv_bfloat16_flop_fraction: {...}    # of one kind of operator in one element type
      dram_fraction: {...}                  # likewise

The most specific one counts. Every kernel has one algorithm without a workspace, which results mention.
Source: Williams, Waterman and Patterson, Roofline, Communications of the ACM 52(4), 2009.
"""

import re
from collections.abc import Mapping
from typing import Final

from vdnnsim.cost.machine import peak_flop_per_s
from vdnnsim.cost.operator_text import OPERATOR_NAMES
from vdnnsim.cost.parameters import check_parameters
from vdnnsim.cost.rate_origins import RatedModel
from vdnnsim.cost.table import KernelCost, KernelWork, MachineCosts
from vdnnsim.dnn.workload import Optimizer
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType

OVERHEAD: Final = "launch_overhead_s"
_NAMES: Final = (*OPERATOR_NAMES, *(each.value for each in Optimizer if each is not Optimizer.NONE))
_FRACTION: Final = re.compile(
    rf"(?:({'|'.join(_NAMES)})_)?(?:({'|'.join(each.value for each in ElementType)})_)?(flop|dram)_fraction"
)


class RooflineCosts(MachineCosts):
    """The costs of kernels by the rooflines of one server.

    Raises:
        ProfileError: the overhead is missing, a parameter is unknown, or a fraction is not above 0 and at most 1.
    """

    gap = "a roofline knows no workspaces, so none count"

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._values = RatedModel(server, lambda values: roofline_parameters(server.name, values))

    def kernel(self, work: KernelWork) -> KernelCost:
        peak, dram_bytes_per_s = peak_flop_per_s(self._server, work.element_type), self._server.gpu.dram_bytes_per_s
        nbytes = work.nbytes - work.found_bytes(self._server.gpu.l2_bytes)

        def seconds(values: Mapping[str, float]) -> float:
            flop_per_s = peak * _fraction(values, work, "flop")
            bytes_per_s = dram_bytes_per_s * _fraction(values, work, "dram")
            return max(sum(work.flop.values()) / flop_per_s, nbytes / bytes_per_s) + values[OVERHEAD]

        return self._values.cost(seconds, nbytes)


def _fraction(values: Mapping[str, float], work: KernelWork, of: str) -> float:
    name, element_type = work.name, work.element_type.value
    nearest = (f"{name}_{element_type}_{of}", f"{name}_{of}", f"{element_type}_{of}", of)
    return next((values[key] for each in nearest if (key := f"{each}_fraction") in values), 1.0)


def roofline_parameters(name: str, values: Mapping[str, float]) -> Mapping[str, float]:
    stated = [key for key in values if _FRACTION.fullmatch(key)]
    examples = ("flop_fraction", "dram_fraction", "conv_flop_fraction")
    check_parameters(name, values, (OVERHEAD, *examples, *stated), (OVERHEAD,), "a parameter of a roofline")
    return values
