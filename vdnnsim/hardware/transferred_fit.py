"""Parameters that were fitted on another machine: they are carried over, and no longer count as fitted.

A parameter of a cost model is a fraction of the peaks of the GPU whose kernels were timed. Its source names the rows,
`vdnnsim.cost.fit of titan_x_maxwell.fit.csv`, and so the profile of that GPU. In a profile with another GPU, other
peaks or another value of the parameter, as in an edited copy of a file, the parameter is carried over from there.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from vdnnsim.hardware.server import Figure, Origin, Server

FITTED_TO: Final = "vdnnsim.cost.fit of"
"""Prefix of the source of a fitted parameter, before the name of its rows."""
COST_MODEL: Final = "cost_model."
DECIDES_KERNELS: Final = ("gpu.peak.", "gpu.dram_bandwidth", "gpu.multiprocessors", COST_MODEL)
"""Prefixes of the key paths of figures on which kernel times depend."""
_ROWS: Final = re.compile(rf"{re.escape(FITTED_TO)} (\S+?)\.fit\.csv")
_NOT_BY_MAKERS: Final = frozenset({Origin.FITTED, Origin.MEASURED})


def times_alike(one: Server, other: Server) -> bool:
    """Whether two machines have the same GPU with regard to kernel times."""
    rates = ((each.name, each.flop_per_s, each.dram_bytes_per_s, each.multiprocessors) for each in (one.gpu, other.gpu))
    return next(rates) == next(rates)


def without_foreign_fits(server: Server, machine: Callable[[str], Server | None]) -> Server:
    """Return a server, as its file states it, on which parameters that were fitted on another GPU are carried over.

    `machine` returns the machine of another profile by name; None if there is none, or it is this file.
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
    """Return a server whose measured or fitted figures at key paths are carried over from the profile `whose` names."""

    def changed(each: Figure) -> Figure:
        if each.path not in paths or each.origin not in _NOT_BY_MAKERS:
            return each
        source = f"carried over from {whose(each.path)}, there {each.origin.value}: {each.source}"
        return replace(each, origin=Origin.ASSUMED, source=source)

    return replace(server, figures=tuple(map(changed, server.figures)))


def inherited(server: Server, base: Server) -> Server:
    """Return a server that extends another; on another GPU measured and fitted parameters are carried over."""
    if times_alike(server, base):
        return server
    same = {each.path for each in set(server.figures) & set(base.figures)}
    kernels = server.kernels
    if kernels is not None and base.kernels is not None and kernels.table == base.kernels.table:
        kernels = replace(kernels, timed_on=base.name)
    return replace(carried_over(server, same, lambda _: base.name), kernels=kernels)
