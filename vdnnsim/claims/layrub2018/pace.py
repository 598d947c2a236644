"""The pace of the paper's machine: how long Caffe and MXNet take there for an iteration, before anything is saved.

An iteration of Table 5 takes 1.3 to 120 times as long there as its kernels do here; LeNet's under Caffe takes 107 ms
for 1.2 ms. What a copy costs hangs on what it can hide behind. So where the paper says how long the base takes, kernels
are made to take as much longer as brings the replay of the base there; what a policy adds to it is not in that.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

import msgspec

from vdnnsim.claims.claim import NetworkBatch, read_data, read_network
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns

Cells = TypeVar("Cells")


class Stated(msgspec.Struct, frozen=True):
    """What tables of the paper state, by network and batch size as `resnet34(32)`, in the units of `tables.yaml`."""

    table_1: dict[str, tuple[int | float, float]]
    table_5: dict[str, tuple[float | None, ...]]
    table_6: dict[str, tuple[int | None, ...]]
    table_7: dict[str, tuple[int, float]]
    table_8: dict[str, float]


STATED: Final = read_data("layrub2018", "tables.yaml", Stated)


def by_case(table: Mapping[str, Cells]) -> list[tuple[NetworkBatch, Cells]]:
    """Return the rows of a table with their networks."""
    return [(read_network(name), cells) for name, cells in table.items()]


ITERATIONS: Final = 20
PASSES: Final[Mapping[tuple[str, str], int]] = {("resnet34", "caffe"): 2, ("resnet50", "caffe"): 2}
"""How often forward and backward run in an iteration, by network and base, where it is more than once: `iter_size` of
the authors' solvers (github.com/CGCL-codes/Layrub at 19dc3bb, models/resnet/resnet_{34,50}_solver.prototxt)."""

ONE_NODE_EPOCH_S: Final[Mapping[str, float]] = {
    "alexnet": 107 * 60.0,
    "resnet50": (53 * 60 + 16) * 60.0,
    "resnet1001": (395 * 60 + 25) * 60.0,
}
"""Table 8."""
IMAGENET_IMAGES: Final = 1_281_167

_COLUMNS: Final[Mapping[str, int]] = {"base(p)": 0, "caffe": 2}
"""Of Table 5, by the policy that is its base."""


_PACE_ERROR: Final = 1e-3


def at_paper_pace(
    runs: LayrubRuns, case: LayrubCase, base: str, passes: Mapping[tuple[str, str], int] = PASSES
) -> LayrubCase:
    """Return a network of Table 5 at the pace at which the replay of a base takes as long as the paper's."""
    paper_s = STATED.table_5[f"{case.network}({case.batch_size})"][_COLUMNS[base]]
    assert paper_s is not None, f"Table 5 has no time of {case.network} under {base}"
    pass_s = paper_s / ITERATIONS / passes.get((case.network, base), 1)
    return replace(case, slowdown=pass_s / runs.iteration_s(case, base))


def one_node_iteration_s(case: LayrubCase) -> float:
    """Return the seconds of an iteration of Table 8 on one node; an epoch has so many that each takes one batch."""
    return ONE_NODE_EPOCH_S[case.network] * case.batch_size / IMAGENET_IMAGES


def at_one_node_pace(runs: LayrubRuns, case: LayrubCase, policy: str) -> LayrubCase:
    """Return a network of Table 8 at the pace at which the replay of one node takes as long as the paper's.

    Copies keep theirs, so an iteration changes by less than its kernels. Each next pace lies on the line through the
    last two, until there is a thousandth of the error.
    """
    wanted_s = one_node_iteration_s(case)
    before, case = case, replace(case, slowdown=case.slowdown * wanted_s / runs.iteration_s(case, policy))
    while abs((case_s := runs.iteration_s(case, policy)) / wanted_s - 1) > _PACE_ERROR:
        slope_s = (case_s - runs.iteration_s(before, policy)) / (case.slowdown - before.slowdown)
        before, case = case, replace(case, slowdown=case.slowdown + (wanted_s - case_s) / slope_s)
    return case
