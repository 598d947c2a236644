"""How fast a network is trained, in words: images, texts, videos or sequences per second, and what they consist of."""

from collections.abc import Sequence

from vdnnsim.dnn.samples import Sample
from vdnnsim.report.scale import rate_scale
from vdnnsim.units import format_rate


def per_second(sample: Sample) -> str:
    """Return the unit: `images/s`."""
    return f"{sample.names}/s"


def rate_cells(rates: Sequence[float | None]) -> list[str]:
    """Return the rates of a column, which all have as many decimals, and four digits or more; nothing of none."""
    known = [rate for rate in rates if rate is not None]
    scale = rate_scale(known).telling(known, digits=4)
    return ["" if rate is None else scale.number(rate) for rate in rates]


def rate_text(sample: Sample, samples_per_s: float) -> str:
    """Return a rate with its unit, and how many steps that are: `1569 images/s`; `38 texts/s, 38912 tokens/s`."""
    rate = f"{format_rate(samples_per_s)} {per_second(sample)}"
    return f"{rate}, {format_rate(sample.steps * samples_per_s)} {sample.step}s/s" if sample.step else rate
