"""Colours and names of phases, copies, stalls and kinds of buffers, in all pictures and pages.

The palette is safe for colour-blind readers (Okabe and Ito, and a violet). A copy and the stall that waits for it have
one colour.
"""

from typing import Final

from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import AllReduce, Communicate, Compute, Offload, Operation, Prefetch, Stream
from vdnnsim.plans.trace import StallCause
from vdnnsim.plans.training_plan import BufferKind

INK: Final = "#1a1a1a"
MUTED: Final = "#6b6b6b"
GRID: Final = "#e4e4e4"
ALARM: Final = "#c0392b"
OFFLOAD: Final = "#e69f00"
PREFETCH: Final = "#cc79a7"
EXCHANGE: Final = "#b8a500"
_COLLECTIVE: Final = "#5d3a9b"
_PIPELINE: Final = "#c9b6e4"
_ON_DEMAND: Final = "#8e2f6b"

PHASE_COLORS: Final = {
    Phase.FORWARD: "#0072b2",
    Phase.BACKWARD_DATA: "#56b4e9",
    Phase.BACKWARD_WEIGHTS: "#009e73",
    Phase.BACKWARD: "#117a8b",
    Phase.UPDATE: "#4d4d4d",
}
STREAM_COLORS: Final = {
    **{phase.value: color for phase, color in PHASE_COLORS.items()},
    "offload": OFFLOAD,
    "prefetch": PREFETCH,
    "fetch on demand": _ON_DEMAND,
    "exchange of gradients": EXCHANGE,
    "communication": _COLLECTIVE,
    "send or receive": _PIPELINE,
}
"""By `kind_of` an operation."""
STALL_COLORS: Final = {
    StallCause.OFFLOAD: OFFLOAD,
    StallCause.PREFETCH: PREFETCH,
    StallCause.ON_DEMAND: _ON_DEMAND,
    StallCause.AGGREGATION: EXCHANGE,
    StallCause.COMMUNICATION: _COLLECTIVE,
    StallCause.PIPELINE: _PIPELINE,
    StallCause.ON_HOST: PHASE_COLORS[Phase.UPDATE],
    StallCause.PINNING: "#d55e00",
    StallCause.HOST: "#9a9a9a",
}
KIND_COLORS: Final = {
    BufferKind.WEIGHTS: "#4d4d4d",
    BufferKind.WEIGHT_GRADIENT: "#9a9a9a",
    BufferKind.OPTIMIZER_STATE: "#cc79a7",
    BufferKind.STATISTICS: "#009e73",
    BufferKind.LABELS: "#117733",
    BufferKind.FEATURE_MAP: "#0072b2",
    BufferKind.GRADIENT_MAP: "#56b4e9",
    BufferKind.WORKSPACE: "#7b4ae0",
}
"""In stacking order, resident buffers at the bottom."""
SERIES_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#4d4d4d", "#8e2f6b")
"""Of series without a colour of their own."""
_LIGHT: Final = 135
"""Luma, of 255, from which text on a colour is dark."""


def kind_of(operation: Operation) -> str:
    """Return the kind of an operation that has a span: `backward data`, `fetch on demand`."""
    match operation:
        case Compute(phase=phase):
            return phase.value
        case Offload():
            return "offload"
        case Prefetch(on_demand=on_demand):
            return "fetch on demand" if on_demand else "prefetch"
        case Communicate(stream=Stream.SEND | Stream.RECEIVE):
            return "send or receive"
        case Communicate(stream=Stream.FROM_HOST):
            return "prefetch"
        case Communicate(stream=Stream.TO_HOST, phase=phase):
            return phase.value if phase is Phase.UPDATE else "offload"
        case Communicate():
            return "communication"
        case _:
            assert isinstance(operation, AllReduce), "only what takes time has a span"
            return "exchange of gradients"


def written_on(color: str) -> str:
    """Return the text colour for a background: ink on light ones, else white."""
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    # Luma by ITU-R BT.601.
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue >= _LIGHT else "white"
