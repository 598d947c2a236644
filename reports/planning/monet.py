"""MONeT's published budgets, and what `optimal` pays for them, as a page.

    python -m reports.planning.monet --out reports/planning

MONeT (Shah, Wu, Mohan, Chidambaram, Krähenbühl: Memory Optimization for Deep Networks, ICLR 2021) chooses recomputation
and the algorithms of convolutions under a budget of memory, and offloads nothing. Its overheads are measured, on a P100
with PyTorch; ours are simulated.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.profile import find_profile, load_profile
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.optimal import Optimal
from vdnnsim.report.document import Heading
from vdnnsim.report.markdown import Ready, page, table
from vdnnsim.scenario.simulator import Simulator

ROOT: Final = Path(__file__).parents[2]
MACHINE: Final = "p100"
SEARCH: Final = "20 s"


@dataclass(frozen=True)
class Budget:
    """A row of MONeT's: GB that PyTorch takes, None where not stated, the budget, and the overhead in per cent."""

    network: str
    batch: int
    whole_gb: float | None
    budget_gb: float
    overhead: float


BUDGETS: Final = (
    Budget("resnet50", 184, 15.06, 4.99, 11.95),
    Budget("googlenet", 320, None, 4.99, 15.77),
    Budget("vgg_d_13conv", 176, 14.12, 9.71, -5.3),
    Budget("vgg_d_13conv", 176, 14.12, 5.51, 9.11),
)


def row_of(budget: Budget) -> tuple[str, ...]:
    """Return the time of `optimal` at a budget over that of the fastest kernels, with and without host memory."""
    workload = Workload(build_network(budget.network), budget.batch)
    machine = Simulator.of(
        workload, load_profile(find_profile(MACHINE, ROOT)).server, MemoryModel.IDEAL, PinnedMemory.ARENA
    )
    cells = []
    for host_bytes in (machine.limits.host_bytes, 1):
        limits = replace(machine.limits, device_bytes=round(budget.budget_gb * 1e9), host_bytes=host_bytes)
        here = replace(machine, limits=limits)
        plan = Optimal(time_limit=SEARCH).plan(here.setting())
        trial = here.run_trial(plan)
        certificate = plan.certificate
        assert certificate is not None
        fastest_s = machine.oracle().iteration_s
        over = f"{100 * (trial.cost_s / fastest_s - 1):+.1f} %, within {100 * certificate.gap(trial.cost_s):.1f} %"
        cells.append(over if trial.fits else f"does not fit: {certificate.stays[0]}")
    name = f"{budget.network} ({budget.batch})"
    whole = "" if budget.whole_gb is None else f"{budget.whole_gb:g}"
    return name, whole, f"{budget.budget_gb:g}", f"{budget.overhead:+.2f} %", *cells


def budget_page() -> str:
    """Plan under each of the published budgets, and return the page."""
    return page(
        (
            Heading("MONeT's budgets", 1),
            Ready(
                "Written by `python -m reports.planning.monet`. MONeT (ICLR 2021) decides recomputation and algorithms "
                "of convolutions together under a budget, and offloads nothing; its overheads are measured on a P100 "
                f"with PyTorch, over PyTorch. Ours are simulated on the profile `{MACHINE}`, which is carried over "
                "from sister cards, over the fastest kernels in all the memory that they want; neither context nor "
                "allocator counts. *Within* is the distance to the bound of any schedule. Without host memory nothing "
                "can leave, as with MONeT."
            ),
            table(
                (
                    *("network", "PyTorch, GB", "budget, GB", "MONeT, measured"),
                    "ours, simulated",
                    "without host memory",
                ),
                [row_of(each) for each in BUDGETS],
                1,
            ),
        )
    )


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True)
def main(out: Path) -> None:
    """Plan for each budget, and write the page."""
    (out / "monet.md").write_text(budget_page())


if __name__ == "__main__":
    main()
