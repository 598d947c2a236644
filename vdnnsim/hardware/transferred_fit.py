"""What becomes of a fit on another machine: its numbers are carried over there, and no longer fitted.

A parameter of a cost model is a fraction of the peaks of the GPU whose kernels were timed. Its source names the rows,
`vdnnsim.cost.fit of titan_x_maxwell.fit.csv`, and so the profile whose GPU that was. A profile with another GPU, other
peaks or another value of the parameter has it from there, whatever its file says: copies of files are how people
describe a card that they do not have.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from vdnnsim.hardware.server import Figure, Origin, Server

FITTED_TO: Final = "vdnnsim.cost.fit of"
"""How the source of a fitted parameter begins; the name of its rows follows."""
COST_MODEL: Final = "cost_model."
DECIDES_KERNELS: Final = ("gpu.peak.", "gpu.dram_bandwidth", "gpu.multiprocessors", COST_MODEL)
"""How the key paths begin of all that kernel times depend on."""
_ROWS: Final = re.compile(rf"{re.escape(FITTED_TO)} (\S+?)\.fit\.csv")
_NOT_BY_MAKERS: Final = frozenset({Origin.FITTED, Origin.MEASURED})


def times_alike(one: Server, other: Server) -> bool:
    """Whether two machines have the same GPU, as far as kernel times depend on it."""
    rates = ((each.name, each.flop_per_s, each.dram_bytes_per_s, each.multiprocessors) for each in (one.gpu, other.gpu))
    return next(rates) == next(rates)


def without_foreign_fits(server: Server, machine: Callable[[str], Server | None]) -> Server:
    """Return a server whose parameters are fitted only where they are so on its own GPU.

    Args:
        server: as its file has it.
        machine: returns the machine of a profile by its name; None where there is none, or where it is this very file.
    """
    named = {each.path: found[1] for each in server.figures if (found := _ROWS.search(each.source))}
    foreign: set[str] = set()
    for name in dict.fromkeys(named.values()):
        paths = {path for path, rows in named.items() if rows == name}
        fitted = machine(name)
        if name != server.name if fitted is None else not _is_same(server, fitted, paths):
            foreign |= {path for path in paths if path.startswith(COST_MODEL)}
    return carried_over(server, foreign, lambda path: named[path])


def _is_same(server: Server, fitted: Server, paths: Collection[str]) -> bool:
    names = [path.removeprefix(COST_MODEL) for path in paths]
    return times_alike(server, fitted) and all(
        server.cost_model.get(name) == fitted.cost_model.get(name) for name in names
    )


def carried_over(server: Server, paths: Collection[str], whose: Callable[[str], str]) -> Server:
    """Return a server whose figures at key paths were fitted or measured on the profile that `whose` names."""

    def changed(each: Figure) -> Figure:
        if each.path not in paths or each.origin not in _NOT_BY_MAKERS:
            return each
        source = f"carried over from {whose(each.path)}, there {each.origin.value}: {each.source}"
        return replace(each, origin=Origin.ASSUMED, source=source)

    return replace(server, figures=tuple(map(changed, server.figures)))


def inherited(server: Server, base: Server) -> Server:
    """Return a server that extends another: on another GPU what was measured or fitted there is carried over."""
    if times_alike(server, base):
        return server
    same = {each.path for each in set(server.figures) & set(base.figures)}
    kernels = server.kernels
    if kernels is not None and base.kernels is not None and kernels.table == base.kernels.table:
        kernels = replace(kernels, timed_on=base.name)
    return replace(carried_over(server, same, lambda _: base.name), kernels=kernels)
