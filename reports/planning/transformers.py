"""How near `optimal` comes to its bound on transformers: `python -m reports.planning.transformers [NAME]...`.

Takes some hour of one core. Rows of other models, cards or memories are kept, and with `--resume` those of the commit
that is checked out, so that it goes on where it was ended; several may run side by side, each for models or cards of
its own.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Final

import click

from reports.planning.bounds import read_rows
from reports.planning.models import MODELS
from vdnnsim.api.captured import capture
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.files.atomic import alone_in
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.planning.explanations import floor_bytes
from vdnnsim.planning.problem import problem_of
from vdnnsim.plans.placement import needed_bytes
from vdnnsim.plans.schedule import iteration
from vdnnsim.policies.interface import make_plan
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.document import Block, Bullets, Heading
from vdnnsim.report.folder import source_commit
from vdnnsim.report.markdown import Ready, page, table
from vdnnsim.report.result_table import write_csv
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import GIB

CARDS: Final = ("rtx_4090", "a100_40gb", "h100_sxm")
LEAST: Final = "least"
MEMORIES: Final = ("0.9", "0.7", "0.5", LEAST)
"""Shares of the memory that the plain loop takes, and the least in which there is a plan."""
MODELS_OF_MEMORY: Final = {"bytes": MemoryModel.IDEAL, "reserved": MemoryModel.PYTORCH}
"""How memory is counted: by bytes, or at addresses in what the loop of `plan.apply` reserves ahead."""
ABOVE_FLOOR: Final = (1.01, 1.02, 1.03, 1.05, 1.1, 1.2, 1.3)
"""Memories over what some kernel holds in any schedule; the first in which there is a plan is the least."""
COMMIT_DIGITS: Final = 8
OPTIMAL: Final = Optimal()
AIMS: Final = ((0.02, 3 / 4), (0.05, 9 / 10))
"""Gaps, and the part of the rows that should be within."""


def place(model: str, card: str, memory: str, counted: str) -> tuple[int, int, int, int]:
    """Return where a row stands on the page."""
    counts = list(MODELS_OF_MEMORY)
    return counts.index(counted), list(MODELS).index(model), CARDS.index(card), MEMORIES.index(memory)


@dataclass(frozen=True, slots=True)
class Row:
    """A step of a model in so much memory of a card; `seconds` is NaN where no plan fits.

    Attributes:
        memory: the share of what the plain loop takes, or `least`.
        plain_gib: what that takes.
        complete: whether the search ended before its limit.
        costs_most: what costs the plan most time, or fills the memory.
        commit: of the search.
        counted: how memory is counted, a key of `MODELS_OF_MEMORY`.
    """

    model: str
    card: str
    memory: str
    memory_gib: float
    plain_gib: float
    seconds: float
    bound_s: float
    search_s: float
    complete: bool
    costs_most: str
    commit: str
    counted: str = "bytes"

    @property
    def gap(self) -> float:
        """How far it is above the bound, as a fraction; NaN where no plan fits."""
        return self.seconds / self.bound_s - 1 if self.fits else math.nan

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Where it stands on the page."""
        return place(self.model, self.card, self.memory, self.counted)

    @property
    def cells(self) -> tuple[str, ...]:
        """Its cells of the page."""
        share = self.memory if self.memory == LEAST else f"{float(self.memory):.0%}"
        fitting = ("-", "-", "-")
        if self.fits:
            fitting = (f"{1e3 * self.seconds:.1f}", f"{1e3 * self.bound_s:.1f}", f"{100 * self.gap:.2f}")
        return (self.model, self.card, share, f"{self.memory_gib:.1f}", *fitting, f"{self.search_s:.0f}")

    @property
    def fits(self) -> bool:
        """Whether there is a plan."""
        return not math.isnan(self.seconds)


COLUMNS: Final = tuple(each.name for each in fields(Row))
_HEADER: Final = ("model", "card", "memory", "GiB", "step, ms", "bound, ms", "gap, %", "search, s")
_ABOUT: Final = (
    "Written by `python -m reports.planning.transformers`. [models.py](models.py) has the models, batches and "
    "precisions; the optimizer is fused AdamW. Each is captured from its definition, and planned in parts of the "
    "memory that the plain loop takes on its card, as far as the card has it, and in the least in which a plan is "
    "found, 1, 2, 3, 5, 10, 20 or 30 % above what some kernel holds in any schedule. Memory counts bytes "
    "(`memory_model: ideal`), or blocks have addresses in what the loop of `plan.apply` reserves ahead. The bound is "
    "of all schedules of this order that keep weights, their gradients and states, with all else offloaded or "
    "recomputed any number of times. Seconds of search are processor time of one core that others shared; searches "
    "count steps, so that the plans are the same on any machine unless 60 s end them. `transformers.csv` names the "
    "commit of each row's search."
)

CAUSES: Final = Path(__file__).with_name("causes_of_misses.md")
"""What is known of the misses, by hand."""


def simulator(
    workload: CapturedWorkload, server: Server, nbytes: int | None = None, model: MemoryModel = MemoryModel.IDEAL
) -> Simulator:
    """Return a machine, with so much memory for buffers."""
    if nbytes is not None:
        server = replace(server, gpu=replace(server.gpu, memory_bytes=nbytes + server.gpu.context_bytes))
    return Simulator.of(workload, server, model, PinnedMemory.ARENA)


def rows_of(name: str, card: str, workload: CapturedWorkload, memories: Sequence[str], counted: str) -> Iterator[Row]:
    """Yield the rows of a model on a card in some memories; the least is by bytes alone."""
    server = read_profile(find_profile(card, Path()))
    machine = simulator(workload, server)
    setting = machine.setting()
    plain_bytes = needed_bytes(make_plan(PyTorch(), setting), setting.limits.granule_bytes)
    problem = problem_of(iteration(workload), workload, machine.costs, 0, setting.limits.granule_bytes)
    floor = max(map(floor_bytes, problem.kernels))
    card_bytes = setting.limits.device_bytes
    commit = _commit()

    def row(memory: str, nbytes: int) -> Row:
        small = simulator(workload, server, nbytes, MODELS_OF_MEMORY[counted])
        begin = time.process_time()
        plan = make_plan(OPTIMAL, small.setting())
        took_s = time.process_time() - begin
        trial, certificate = small.run_trial(plan), plan.certificate
        assert certificate is not None
        said = [*certificate.levers] if trial.fits else [*certificate.stays]
        if counted != "bytes" and "reserved" not in certificate.memory:
            said.insert(0, f"Nothing found has room in what is reserved ahead; this is for {certificate.memory}.")
        return Row(
            *(name, card, memory, nbytes / GIB, plain_bytes / GIB),
            *(trial.cost_s if trial.fits else math.nan, certificate.bound_s, took_s, certificate.complete),
            next(iter(said), ""),
            commit,
            counted,
        )

    for memory in memories:
        if memory != LEAST and floor <= float(memory) * plain_bytes <= card_bytes:
            yield row(memory, int(float(memory) * plain_bytes))
    for above in ABOVE_FLOOR if LEAST in memories and counted == "bytes" else ():
        if floor * above > min(card_bytes, plain_bytes):
            return
        found = row(LEAST, int(floor * above))
        if found.fits:
            yield found
            return


def _commit() -> str:
    source = source_commit()
    return "" if source is None else source.hash[:COMMIT_DIGITS]


def transformers_page(rows: Sequence[Row]) -> str:
    """Return the page."""
    blocks: list[Block | Ready] = [*_parts("By bytes", [row for row in rows if row.counted == "bytes"])]
    if ahead := [row for row in rows if row.counted != "bytes"]:
        blocks += _parts("In memory that is reserved ahead", ahead)
    return page(
        (
            Heading("How near the planner comes to its bound on transformers", 1),
            Ready(_ABOUT),
            Ready(CAUSES.read_text(encoding="utf-8").strip()),
            *blocks,
        )
    )


def _parts(title: str, rows: Sequence[Row]) -> Iterator[Block | Ready]:
    found = [row for row in rows if row.fits]
    gaps = sorted(row.gap for row in found)
    within = [
        f"A gap of at most {aim:.0%} is aimed at for {share:.0%} of the rows that fit: "
        f"{sum(gap <= aim for gap in gaps)} of {len(gaps)} have it."
        for aim, share in AIMS
    ]
    times = [row.search_s for row in found]
    said = (
        f"The median gap is {100 * median(gaps):.2f} %, the largest {100 * gaps[-1]:.2f} %. "
        f"The median search takes {median(times):.0f} s, the longest {max(times):.0f} s."
    )
    yield Heading(title)
    yield Bullets((*within, said))
    missed = [_missed(row) for row in rows if not row.gap <= AIMS[0][0]]
    if missed:
        yield Heading("Misses", 3)
        yield Bullets(tuple(missed))
    yield Heading("All of them", 3)
    yield table(_HEADER, [row.cells for row in rows], 2)


def _missed(row: Row) -> str:
    what = f"{row.gap:.1%} above the bound" if row.fits else "no plan"
    ended = "" if row.complete else " The search was ended by its limit."
    return f"{row.model} on {row.card} in {row.memory_gib:.1f} GiB: {what}. {row.costs_most}{ended}"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path(__file__).parent, help="Where to write.")
@click.option("--card", "cards", multiple=True, type=click.Choice(CARDS), default=CARDS)
@click.option("--memory", "memories", multiple=True, type=click.Choice(MEMORIES), default=MEMORIES)
@click.option("--counted", multiple=True, type=click.Choice(list(MODELS_OF_MEMORY)), default=list(MODELS_OF_MEMORY))
@click.option("--resume", is_flag=True, help="Keep the rows of the commit that is checked out.")
@click.argument("names", nargs=-1, type=click.Choice(list(MODELS)))
def main(
    out: Path,
    cards: Sequence[str],
    memories: Sequence[str],
    counted: Sequence[str],
    names: Sequence[str],
    *,
    resume: bool,
) -> None:
    """Compute the table again, or the rows of some models, and the page."""
    path, commit = out / "transformers.csv", _commit()
    kept = {each.place for each in read_rows(path, Row) if resume and each.commit == commit}
    for name in names or MODELS:
        left = {
            (card, how): [each for each in memories if place(name, card, each, how) not in kept]
            for card in cards
            for how in counted
        }
        if not any(left.values()):
            continue
        model = MODELS[name]
        step = capture(
            model.make, model.inputs(), loss=lambda loss: loss, precision=model.precision, optimizer="adamw_fused"
        )
        workload = CapturedWorkload.of(step)
        for (card, how), wanted in left.items():
            for row in rows_of(name, card, workload, wanted, how):
                click.echo("  ".join(row.cells), err=True)
                with alone_in(out):
                    rows = [*(each for each in read_rows(path, Row) if each.place != row.place), row]
                    rows.sort(key=lambda each: each.place)
                    write_csv(path, COLUMNS, map(astuple, rows))
                    (out / "transformers.md").write_text(transformers_page(rows))


if __name__ == "__main__":
    main()
