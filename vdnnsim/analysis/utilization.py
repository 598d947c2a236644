"""Model FLOPs utilization (MFU): what a step computes over what its GPUs could at their peak."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType

_FORWARDS_OF_A_STEP: Final = 3
"""Backward takes twice the FLOPs of forward: one product each for the gradients of inputs and of weights."""
_LARGE: Final = 0.05
"""Share of the FLOPs of a rank from which on a module is named."""
_INDEX: Final = re.compile(r"(?<=\.)[0-9]+(?![^.])")
"""In a path, of a module of a list; at its begin those of a model that is a `Sequential` are different ones."""


def flop_by_module(steps: Sequence[CapturedStep], samples: float) -> dict[str, float]:
    """Return the FLOPs of all ranks for a sample, without recomputation: three times those of forward.

    They are by module, as `layers.*.up_proj`, for stages number their blocks anew.

    Args:
        steps: of a rank, or of each rank of a pipeline.
        samples: of them, for each GPU.
    """
    found = defaultdict[str, float](float)
    for step in steps:
        for each in step.operations:
            if each.phase is Phase.FORWARD:
                flop = _FORWARDS_OF_A_STEP * each.all_flop / (len(steps) * samples)
                # A stage holds its part of the model as `model`.
                path = step.path_of(each).removeprefix("model." if step.pipeline > 1 else "")
                found[_INDEX.sub("*", path)] += flop
    return found


def repeated_modules(model: Mapping[str, float], ranks: Mapping[str, float], splits: int) -> dict[str, float]:
    """Return large modules that ranks which split layers compute whole, with their shares of the FLOPs of a rank.

    Args:
        model: FLOPs for a sample by module, where no layer is split.
        ranks: the same of all ranks.
        splits: ranks that train the same samples.
    """
    # All together compute a split module once, another `splits` times; the root lies between the two.
    whole = (path for path, flop in ranks.items() if flop > model.get(path, flop) * splits**0.5)
    shares = {path: ranks[path] / sum(ranks.values()) for path in whole}
    return {path: share for path, share in shares.items() if share >= _LARGE}


def product_type(step: CapturedStep, server: Server) -> ElementType:
    """Return the type in which products of a step are computed, convolutions if it has any."""
    asked = step.precision.autocast or step.precision.element_type
    convolves = any(isinstance(each.work, ConvolutionWork) for each in step.operations)
    return server.convolution_type(asked) if convolves else asked


def flop_ratio(flop: float, seconds: float, step: CapturedStep, server: Server) -> float | None:
    """Return the MFU of a GPU that computes so many FLOPs of the model in the time of a step.

    None where the profile has no peak of the type, or where Winograd's convolutions multiply up to four times less
    often than is counted.
    """
    peak = server.gpu.flop_per_s.get(product_type(step, server))
    ratio = 2.0 if peak is None else flop / (seconds * peak)
    return None if ratio > 1 else ratio
