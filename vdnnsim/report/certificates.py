"""What is proven of plans, and why they are as they are, in sentences.

How near a plan is to the best is told to a tenth of a percent, below that to a hundredth, and never rounded in its
favour: `within 0.3 %` is true.
"""

from collections.abc import Iterator
from math import ceil
from typing import Final

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.files.messages import listed
from vdnnsim.plans.certificate import Certificate
from vdnnsim.units import format_bytes, format_seconds

_SMALL_PERCENT: Final = 0.1
"""Below it two digits are told."""
_NOISE_PERCENT: Final = 1e-7
"""What sums of seconds in two orders differ by."""
_MOST_NAMED: Final = 3


def certificates(result: ScenarioResult) -> tuple[str, ...]:
    """Return what is to be said of each policy whose plan has a certificate, of several GPUs of the one done last.

    What does not fit was not bounded: of it only what stands in the way is told.
    """
    return tuple(
        f"{row.policy}: {sentence}"
        for row in result.slowest
        if (found := row.trace.plan.certificate) is not None
        for sentence in (_sentences(found, row) if row.fits else found.stays)
    )


def certified(certificate: Certificate, iteration_s: float) -> str:
    """Return how near an iteration is to the best: `certified: within 0.3 % of the best schedule of this order ...`."""
    again = certificate.holds_for.recomputes
    of_class = ", with any map offloaded or computed again" if again else " that computes nothing again"
    if certificate.holds_for.moves_states:
        of_class += ", with states and weight gradients on the host or not"
    ended = "" if certificate.complete else "; the time limit ended the search"
    return (
        f"certified: within {gap_text(certificate.gap(iteration_s))} of the best schedule of this order{of_class}, "
        f"which takes {format_seconds(certificate.bound_s)} or more{ended}"
    )


def gap_text(gap: float) -> str:
    """Return how far an iteration is above its bound, as a fraction, for people, rounded up: `0.3 %`; `0.04 %`."""
    percents = 100 * gap
    digits = 1 if percents >= _SMALL_PERCENT else 2
    rounded = ceil((percents - _NOISE_PERCENT) * 10**digits) / 10**digits
    return f"{rounded + 0.0:.{digits}f} %"


def _sentences(certificate: Certificate, row: PolicyResult) -> Iterator[str]:
    yield certified(certificate, row.metrics.iteration_s)
    yield _moved(certificate)
    if certificate.slower:
        yield _slower(certificate)
    yield from certificate.levers
    yield from certificate.stays


def _moved(certificate: Certificate) -> str:
    """Return how much leaves, and what is computed again."""
    maps = len({name for name, _ in certificate.offloaded})
    nbytes = format_bytes(sum(nbytes for _, nbytes in certificate.offloaded))
    offloads = f"offloads {_counted(maps, 'map')}, {nbytes}" if maps else "offloads nothing"
    layers = certificate.recomputed
    again = f"computes {_counted(len(layers), 'layer')} again: {_first(layers)}" if layers else "computes nothing again"
    kept = " and ".join(f"{format_bytes(nbytes)} of {kind}" for kind, nbytes in certificate.on_host)
    return f"{offloads}; {again}" + (f"; {kept} are on the host while no kernel wants them" if kept else "")


def _slower(certificate: Certificate) -> str:
    slower = certificate.slower
    lost = format_seconds(sum(each.lost_s for each in slower))
    told = tuple(
        f"{each.phase} of {each.layer} by {each.chosen}, not {each.fastest} "
        f"(+{format_seconds(each.lost_s)}, {format_bytes(each.saved_bytes)} less workspace)"
        for each in slower
    )
    run = "runs" if len(slower) == 1 else "run"
    return f"{_counted(len(slower), 'kernel')} {run} slower than the fastest algorithm would, by {lost}: {_first(told)}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _first(names: tuple[str, ...]) -> str:
    """Return the first of some names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return listed([*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
