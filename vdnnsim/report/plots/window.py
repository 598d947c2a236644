"""The interval of an iteration that an axis shows, and which one is worth to be magnified."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch

from vdnnsim.plan.operations import Compute, Stream
from vdnnsim.report.plots.style import INK, MUTED
from vdnnsim.report.scale import Scale, time_scale
from vdnnsim.trace import IterationTrace, Span, Stall
from vdnnsim.units import format_seconds

_KERNELS_AROUND = 5


@dataclass(frozen=True, slots=True)
class Window:
    """The interval of an iteration that an axis shows."""

    start_s: float
    end_s: float

    @property
    def times(self) -> Scale:
        """The unit of its axis."""
        return time_scale((self.end_s - self.start_s,))

    @property
    def since(self) -> str:
        """What its axis adds to `time`: ` since 1.2 s`; nothing where it begins with the iteration."""
        return f" since {format_seconds(self.start_s)}" if self.start_s else ""

    def shows(self, thing: Span | Stall) -> bool:
        """Whether a part of it lies inside."""
        return thing.end_s > self.start_s and thing.start_s < self.end_s

    def shown_fraction(self, thing: Span | Stall) -> float:
        """Return how much of the width of its axis a thing takes."""
        return self.bar(thing)[1] * self.times.factor / (self.end_s - self.start_s)

    def bar(self, thing: Span | Stall) -> tuple[float, float]:
        """Return where it begins after the start of the window, and how long it is, on the axis."""
        start_s, end_s = max(thing.start_s, self.start_s), min(thing.end_s, self.end_s)
        return (start_s - self.start_s) / self.times.factor, (end_s - start_s) / self.times.factor


def magnified_window(trace: IterationTrace) -> Window:
    """Return the interval of the kernels around the longest wait for a copy.

    Of equally long ones the first counts. Without such a wait it is the turn from forward to backward; in inference,
    the first layers.
    """
    kernels = trace.spans_on(Stream.COMPUTE)
    if waits := waits_for_copies(trace):
        longest = max(waits, key=lambda stall: stall.end_s - stall.start_s)
        center = next(number for number, span in enumerate(kernels) if span.operation == longest.blocked)
    else:
        center = next((number for number, span in enumerate(kernels) if _is_backward(trace, span)), _KERNELS_AROUND)
    first, last = max(center - _KERNELS_AROUND, 0), min(center + _KERNELS_AROUND, len(kernels)) - 1
    return Window(kernels[first].start_s, kernels[last].end_s)


def waits_for_copies(trace: IterationTrace) -> list[Stall]:
    """Return the stalls that ended with a copy."""
    return [stall for stall in trace.stalls if stall.waited_for is not None]


def _is_backward(trace: IterationTrace, span: Span) -> bool:
    kernel = trace.plan.operations[span.operation]
    return isinstance(kernel, Compute) and kernel.phase.is_backward


def connect(figure: Figure, whole: Axes, part: Axes, window: Window, times: Scale) -> None:
    """Show in the upper half, whose axis goes above it, which interval the lower half magnifies."""
    whole.xaxis.tick_top()
    whole.xaxis.set_label_position("top")
    start, end = window.start_s / times.factor, window.end_s / times.factor
    whole.axvspan(start, end, facecolor="none", edgecolor=INK, linewidth=1.5, zorder=5)
    for above, below in ((start, 0.0), (end, 1.0)):
        line = ConnectionPatch(
            (above, 0.0),
            (below, 1.0),
            coordsA=whole.get_xaxis_transform(),
            coordsB=part.transAxes,
            color=MUTED,
            linewidth=1,
        )
        figure.add_artist(line)
