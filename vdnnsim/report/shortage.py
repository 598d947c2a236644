"""What a policy that does not fit lacks: GPU memory, a piece of it without gaps, or host memory."""

from enum import Enum

from vdnnsim.analysis.results import PolicyResult
from vdnnsim.plan.placement import Pool


class Shortage(Enum):
    """What there is too little of, as a picture says it."""

    GPU = "GPU memory"
    GAPS = "gaps"
    HOST = "host memory"


def shortage(row: PolicyResult) -> Shortage | None:
    """Return what keeps a policy from fitting; None where it fits.

    What it has in use at once may be less than there is: then the gaps between its buffers are what is too much.
    """
    if row.refusal is None:
        return None
    if row.refusal.pool is Pool.HOST:
        return Shortage.HOST
    return Shortage.GAPS if row.metrics.max_memory_bytes <= row.refusal.capacity_bytes else Shortage.GPU
