"""What a reader must know of the kernel times behind a result, in a line; and of a table that lacks some."""

from typing import Final

from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.hardware.server import Origin

_WORDS: Final = {
    Origin.MEASURED: "measured",
    Origin.FITTED: "fitted to measurements",
    Origin.PAPER: "from a paper",
    Origin.ASSUMED: "from assumed rates",
    Origin.DATASHEET: "from datasheet peaks, which no kernel reaches",
}
"""The best known first."""


def peaks_note(kernels: KernelOrigins) -> str:
    """Return the caveat for the second line of a picture: `; kernel times are datasheet peaks`, or nothing."""
    counts = kernels.counts
    if Origin.DATASHEET not in counts:
        return ""
    return f"; {'' if len(counts) == 1 else 'some '}kernel times are datasheet peaks"


def kernel_times(kernels: KernelOrigins) -> tuple[str, ...]:
    """Return where the times of kernels come from, and what a peak means for a result; nothing of no kernels."""
    counts = kernels.counts
    total = sum(counts.values())
    if not total:
        return ()
    if len(counts) == 1:
        ((origin, count),) = counts.items()
        told = f"{count} of {total} {_WORDS[origin]}"
    else:
        told = ", ".join(f"{counts[origin]} {words}" for origin, words in _WORDS.items() if origin in counts)
    caveat = "; copies weigh more here than on the card" if Origin.DATASHEET in counts else ""
    return f"Kernel times: {told}{caveat}", *([f"Kernel table: {kernels.gap}"] if kernels.gap else [])
