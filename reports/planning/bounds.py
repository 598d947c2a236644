"""How near `optimal` comes to its bound on the networks of the vDNN paper, as a table and a page.

    python -m reports.planning.bounds --out reports/planning

Takes some twenty minutes. Bound and plans are of schedules that recompute nothing and keep weights, their gradients and
optimizer states on the GPU.
"""

import csv
import math
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec

from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import AdjustedCosts, CostModel
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy, make_plan
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.report.document import Bullets, Heading, section
from vdnnsim.report.markdown import Ready, code, page, table
from vdnnsim.report.result_table import write_csv
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import GIB

ROOT: Final = Path(__file__).parents[2]
NETWORKS: Final = (
    *("alexnet", "overfeat", "googlenet", "vgg16_64", "vgg16_128", "vgg16_256", "vgg116", "vgg216", "vgg316", "vgg416"),
)
SPEEDS: Final = (1, 2, 4, 8)
"""Of kernels over those of the Titan X; the link is the same."""
USUAL_GIB: Final = 12.0
CHUNKED: Final = Optimal(recompute=False)
WHOLE: Final = Optimal(recompute=False, chunk="whole")
DYNAMIC: Final = "vdnn_dyn"
OTHERS: Final = (
    *("base(p)", DYNAMIC, "vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_pp", "boundary_search"),
    *("swap(p)", "staggered_swap(p)"),
)
"""Policies that recompute nothing."""
AIMS: Final = {speed: 1.005 if speed == 1 else 1.01 for speed in SPEEDS}
WHOLE_AIM: Final = ("vgg16_256", 1.008)
"""At 12 GiB and the speed of the Titan X."""


@dataclass(frozen=True)
class Row:
    """A network on a machine, with times over the bound; NaN where nothing fits.

    What is `tight` is the least memory, in tenths of a GiB, in which `optimal` finds a plan in chunks; the reason is
    that of the largest loss of this plan.
    """

    network: str
    memory_gib: float
    tight: bool
    speed: int
    bound_s: float
    kernels_s: float
    chunked: float
    whole: float
    vdnn_dyn: float
    best: float
    best_other: str
    chunked_plan_s: float
    whole_plan_s: float
    reason: str


COLUMNS: Final = tuple(each.name for each in fields(Row))


def simulator(scenario: Scenario, memory_gib: float, costs: CostModel) -> Simulator:
    """The scenario on a GPU with other memory and other kernel times."""
    server = scenario.server
    gpu = replace(server.gpu, memory_bytes=round(memory_gib * GIB))
    return simulator_of(replace(scenario, server=replace(server, gpu=gpu)), costs)


def sped_up(costs: CostModel, speed: int) -> CostModel:
    """The kernels of a model, so many times as fast."""
    return AdjustedCosts(costs, lambda _w, _l, _p, options: tuple(x.retimed(lambda s: s / speed) for x in options))


def planned(policy: Policy, machine: Simulator) -> tuple[TrainingPlan, float, float]:
    """A plan, the time of its iteration, NaN where it does not fit, and the time that planning took."""
    begin = time.perf_counter()
    plan = make_plan(policy, machine.setting())
    took_s = time.perf_counter() - begin
    trial = machine.run_trial(plan)
    return plan, trial.cost_s if trial.fits else math.nan, took_s


def row_of(scenario: Scenario, memory_gib: float, speed: int, costs: CostModel, *, tight: bool) -> Row:
    """The plans of one machine, over their bound; `tight` memory is the least that `optimal` can do with."""
    machine = simulator(scenario, memory_gib, costs)
    plan, chunked_s, chunked_plan_s = planned(CHUNKED, machine)
    _, whole_s, whole_plan_s = planned(WHOLE, machine)
    types = known_policies()
    others = {each: planned(resolve_policy(each, types), machine)[1] for each in OTHERS}
    best = min(others, key=lambda each: math.inf if math.isnan(others[each]) else others[each])
    assert plan.certificate is not None
    bound_s = plan.certificate.bound_s
    layers = scenario.workload.graph.layers
    kernels_s = sum(
        machine.costs.fastest(layer.index, phase).seconds
        for layer in layers
        for phase in scenario.workload.phases(layer)
    )
    return Row(
        network=scenario.name,
        memory_gib=memory_gib,
        tight=tight,
        speed=speed,
        bound_s=bound_s,
        kernels_s=kernels_s,
        chunked=chunked_s / bound_s,
        whole=whole_s / bound_s,
        vdnn_dyn=others[DYNAMIC] / bound_s,
        best=others[best] / bound_s,
        best_other="" if math.isnan(others[best]) else best,
        chunked_plan_s=chunked_plan_s,
        whole_plan_s=whole_plan_s,
        reason=next(iter(plan.certificate.levers), ""),
    )


def tightest_gib(scenario: Scenario, costs: CostModel) -> float:
    """The least memory, in tenths of a GiB, in which there is a plan in chunks."""

    def fits(tenths: int) -> bool:
        return not math.isnan(planned(CHUNKED, simulator(scenario, tenths / 10, costs))[1])

    return bisect_left(range(round(10 * USUAL_GIB)), x=True, key=fits) / 10


def rows_of(network: str) -> Iterator[Row]:
    """Yield a row of each memory and speed."""
    scenario = read_scenario(ROOT / "scenarios" / f"{network}.yaml")
    costs = {speed: sped_up(ServerCosts(scenario.server), speed) for speed in SPEEDS}
    for memory_gib, tight in ((USUAL_GIB, False), (tightest_gib(scenario, costs[1]), True)):
        for speed, model in costs.items():
            yield row_of(scenario, memory_gib, speed, model, tight=tight)


_ABOUT: Final = (
    "Written by `python -m reports.planning.bounds`. Iterations of the policy `optimal`, as the simulator replays "
    "them, over the bound of their certificates: no schedule is faster that runs each kernel once, in this order, and "
    "keeps weights, their gradients and states on the GPU. 1.005 says that at most 0.5 % of the bound is left to gain. "
    "Nothing is recomputed, neither in the bound nor in a plan; [frontiers](frontiers/README.md) have that. "
    "[MONeT's budgets](monet.md) stand beside. "
    "How long planning takes: [speed](speed.md)."
)
_MEANINGS: Final = f"""\
- Networks, batches and machine are the vDNN paper's (`scenarios/`): a Titan X with 12 GiB, and with the least memory in
  which `optimal` finds a plan, in tenths of a GiB.
- Faster GPUs run each kernel in a half, a quarter and an eighth of its time, with the same PCIe.
- `chunks` are cut where memory is short (`chunk: auto`); `whole` moves whole buffers (`chunk: whole`).
- The best other is the fastest that fits of {", ".join(OTHERS)}; a dash says that none does."""
_HEADER: Final = (
    *("network", "GiB", "GPU", "bound, s", "chunks", "whole", "vdnn_dyn", "best other", "which", "planned in, s"),
)


def planner_page(rows: Sequence[Row]) -> str:
    """Return the page of all rows."""
    met = [row for row in rows if row.chunked <= AIMS[row.speed]]
    chunked = sorted(row.chunked for row in rows)
    network, aim = WHOLE_AIM
    whole = [row.whole for row in rows if (row.network, row.tight, row.speed) == (network, False, 1)]
    asked = [
        f"In chunks at most {AIMS[1]:g} of the bound, {AIMS[8]:g} on faster GPUs: so are {len(met)} of {len(rows)}.",
        f"The median of all is {chunked[len(rows) // 2]:.4f}, the largest {chunked[-1]:.4f}.",
        *(f"Whole buffers, VGG-16 (256) at 12 GiB: at most {aim:g}; it is {each:.4f}." for each in whole),
    ]
    return page(
        (
            Heading("How near the planner comes to the best possible", 1),
            Ready(_ABOUT),
            Ready(_MEANINGS),
            Heading("What was asked for"),
            Bullets(tuple(asked)),
            *section("Misses", [_missed(row) for row in rows if row not in met]),
            Heading("All of them"),
            table(_HEADER, [_cells(row) for row in rows], 1),
            Ready("`planner.csv` has more digits, what the kernels take alone, and what costs each plan most."),
        )
    )


def _missed(row: Row) -> str:
    reason = f" {row.reason}" if row.reason else ""
    return f"{row.network} at {row.memory_gib:g} GiB, GPU x {row.speed}: {row.chunked:.4f}.{reason}"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.network,
        f"{row.memory_gib:g}",
        f"x {row.speed}",
        f"{row.bound_s:.4f}",
        *(_times(each) for each in (row.chunked, row.whole, row.vdnn_dyn, row.best)),
        code(row.best_other) if row.best_other else "",
        f"{row.chunked_plan_s:.1f}",
    )


def _times(over_bound: float) -> str:
    return "-" if math.isnan(over_bound) else f"{over_bound:.4f}"


Kept = TypeVar("Kept")


def read_rows(path: Path, kind: type[Kept]) -> list[Kept]:
    """Return the rows of a kind that were written earlier, none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [msgspec.convert(row, kind, strict=False) for row in csv.DictReader(file)]


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.argument("networks", nargs=-1, type=click.Choice(NETWORKS))
def main(out: Path, networks: Sequence[str]) -> None:
    """Compute the table again, or the rows of some NETWORKS of it, and the page."""
    path = out / "planner.csv"
    found: dict[str, list[Row]] = {network: [] for network in NETWORKS}
    if networks:
        for row in read_rows(path, Row):
            found[row.network].append(row)
    for network in networks or NETWORKS:
        found[network] = []
        for row in rows_of(network):
            sys.stderr.write(f"{' '.join(_cells(row))}\n")
            found[network].append(row)
        write_csv(path, COLUMNS, [astuple(row) for each in found.values() for row in each])
    (out / "README.md").write_text(planner_page([row for each in found.values() for row in each]))


if __name__ == "__main__":
    main()
