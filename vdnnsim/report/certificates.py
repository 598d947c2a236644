"""Certificates of plans in sentences: lower bound, gap, offloaded and recomputed bytes, slower kernels."""

from collections.abc import Iterator
from math import ceil
from typing import Final

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.files.messages import listed
from vdnnsim.plans.certificate import BoundClass, Certificate
from vdnnsim.units import format_bytes, format_seconds

_SMALL_PERCENT: Final = 0.1
"""Below it a gap has two decimals."""
LOOSE: Final = 0.01
"""Gap of the step in unlimited memory from which a bound is called loose."""
_SAME: Final = 1e-6
"""Rounding errors of a step that is as fast as another."""
_NOISE_PERCENT: Final = 1e-7
"""Rounding errors of sums of seconds."""
_MOST_NAMED: Final = 3


def certificates(result: ScenarioResult) -> tuple[str, ...]:
    """Return the sentences of each plan with a certificate; of one that does not fit only its resident memory."""
    return tuple(
        f"{row.policy}: {sentence}"
        for row in result.slowest
        if (found := row.trace.plan.certificate) is not None
        for sentence in (_sentences(found, row) if row.fits else found.stays)
    )


def bound_text(certificate: Certificate, iteration_s: float, unlimited_s: float) -> str:
    """Return bound and gap: `lower bound 354 ms, gap 16.0 %, of schedules of this order that recompute nothing`.

    Where the step in unlimited memory is far above the bound as well, the bound is loose, and the text says its time.
    Where the plan is as fast as that step there is nothing left to bound.
    """
    if iteration_s <= unlimited_s * (1 + _SAME):
        return "as fast as with unlimited memory, so no schedule of this order is faster"
    ended = "" if certificate.complete else "; the time limit ended the search"
    bound, schedules = f"lower bound {format_seconds(certificate.bound_s)}", class_text(certificate.holds_for)
    if certificate.gap(unlimited_s) > LOOSE:
        unlimited = format_seconds(unlimited_s)
        return f"{bound} of {schedules}, loose: even with unlimited memory a step takes {unlimited}{ended}"
    return f"{bound}, gap {gap_text(certificate.gap(iteration_s))}, of {schedules}{ended}"


def class_text(holds_for: BoundClass) -> str:
    """Return the schedules for which a bound holds: `schedules of this order that recompute nothing`."""
    actions = "offload or recompute any activation" if holds_for.recomputes else "recompute nothing"
    states = ", with states and weight gradients on the host or not" if holds_for.moves_states else ""
    return f"schedules of this order that {actions}{states}"


def gap_text(gap: float) -> str:
    """Return a gap rounded up to a tenth of a percent, below that to a hundredth: `0.3 %`, `0.04 %`."""
    percents = 100 * gap
    digits = 1 if percents >= _SMALL_PERCENT else 2
    rounded = ceil((percents - _NOISE_PERCENT) * 10**digits) / 10**digits
    return f"{rounded + 0.0:.{digits}f} %"


def _sentences(certificate: Certificate, row: PolicyResult) -> Iterator[str]:
    iteration_s = row.metrics.iteration_s
    yield bound_text(certificate, iteration_s, row.performance_ratio * iteration_s)
    moved = len({name for name, _ in certificate.offloaded})
    nbytes = format_bytes(sum(nbytes for _, nbytes in certificate.offloaded))
    layers = certificate.recomputed
    kept = " and ".join(f"{format_bytes(nbytes)} of {kind}" for kind, nbytes in certificate.on_host)
    yield (
        (f"offloads {_counted(moved, 'activation')}, {nbytes}; " if moved else "offloads nothing; ")
        + (f"recomputes {_counted(len(layers), 'layer')}: {_first(layers)}" if layers else "recomputes nothing")
        + (f"; {kept} are on the host between their uses" if kept else "")
    )
    if slower := certificate.slower:
        lost = format_seconds(sum(each.lost_s for each in slower))
        named = tuple(
            f"{each.phase} of {each.layer} by {each.chosen}, not {each.fastest} "
            f"(+{format_seconds(each.lost_s)}, {format_bytes(each.saved_bytes)} less workspace)"
            for each in slower
        )
        kernels = f"{_counted(len(slower), 'kernel')} {'runs' if len(slower) == 1 else 'run'}"
        yield f"{kernels} slower than the fastest algorithm would, by {lost}: {_first(named)}"
    if certificate.memory:
        yield f"memory: {certificate.memory}"
    yield from certificate.levers
    yield from certificate.stays


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _first(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMED
    return listed([*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
