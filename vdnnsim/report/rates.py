"""How fast a network is trained, in words: images, texts, videos or sequences per second, and what they consist of."""

from vdnnsim.dnn.samples import Sample
from vdnnsim.units import format_rate


def per_second(sample: Sample) -> str:
    """Return the unit: `images/s`."""
    return f"{sample.names}/s"


def rate_text(sample: Sample, samples_per_s: float) -> str:
    """Return a rate with its unit, and how many steps that are: `1569 images/s`; `38 texts/s, 38912 tokens/s`."""
    rate = f"{format_rate(samples_per_s)} {per_second(sample)}"
    return f"{rate}, {format_rate(sample.steps * samples_per_s)} {sample.step}s/s" if sample.step else rate
