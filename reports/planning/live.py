"""Transformers trained under a plan on a pretended RTX 4090, by `plan.apply` and by `vdnnsim apply`.

    python -m calibration.pretend --hardware rtx_4090 -- python -m reports.planning.live [NAME]...

Rows of other models are kept. `--train NAME` is the script that `vdnnsim apply` runs.
"""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import torch
from torch import Tensor, nn

from reports.planning.bounds import read_rows
from reports.planning.models import MODELS
from reports.pretended_pages import WHAT_IT_PROVES
from vdnnsim.api.planning import plan
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.segments import LARGEST_SMALL_BYTES
from vdnnsim.memory.settings import GRANULE_BYTES
from vdnnsim.plans.repetition import resident_buffers
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.report.document import Heading
from vdnnsim.report.markdown import Ready, page, table
from vdnnsim.report.result_table import write_csv
from vdnnsim.units import GIB, Dimension, parse_quantity

CARD: Final = "rtx_4090"
NAMES: Final = ("decoder, 0.1 B", "decoder, 0.4 B", "GPT-2 medium", "T5-base", "ViT-L/16")
PART: Final = 4
"""By which the batches of the table are divided: what autograd saves in a first step must fit the host."""
SHARE: Final = 0.7
SHARES: Final = {"ViT-L/16": 0.8}
"""Of what the plain loop allocates, where it is not 0.7: less is full of weights, gradients and states."""
STEPS: Final = 50
TRACED: Final = 4
"""The step whose addresses are looked at."""


class Block(NamedTuple):
    """A block of PyTorch's large pools."""

    nbytes: int
    address: int


def blocks_of_plan(trace: IterationTrace) -> list[Block]:
    """Return the large blocks that a step allocates, in the order of their requests."""
    plan, stays = trace.plan, resident_buffers(trace.plan)
    asked = sorted((each for each in trace.memory if each.delta_bytes > 0), key=lambda each: each.operation)
    blocks = (
        Block(round_up(plan.buffers[each.buffer].nbytes, GRANULE_BYTES), each.offset)
        for each in asked
        if each.offset is not None and each.buffer not in stays
    )
    return [each for each in blocks if each.nbytes > LARGEST_SMALL_BYTES]


def blocks_of_loop(entries: Iterable[Mapping[str, Any]]) -> list[Block]:
    """Return the large blocks that were allocated in a history of PyTorch's allocator."""
    taken = (each for each in entries if each["action"] == "alloc")
    blocks = (Block(round_up(each["size"], GRANULE_BYTES), each["addr"]) for each in taken)
    return [each for each in blocks if each.nbytes > LARGEST_SMALL_BYTES]


def at_planned_addresses(planned: Sequence[Block], live: Sequence[Block], segments: Iterable[Mapping[str, Any]]) -> int:
    """Return how many blocks of a loop lie where they were planned in their segment, wherever CUDA put that."""
    starts = sorted((each["address"], each["total_size"]) for each in segments)

    def segment_of(block: Block) -> int:
        found: int = next(start for start, nbytes in starts if start <= block.address < start + nbytes)
        return found

    displaced = defaultdict[int, Counter[int]](Counter)
    for one, other in zip(planned, live, strict=False):
        if one.nbytes != other.nbytes:
            break
        displaced[segment_of(other)][other.address - one.address] += 1
    return sum(max(each.values()) for each in displaced.values())


@dataclass(frozen=True, slots=True)
class Row:
    """Steps of a model in so much memory, `in_place` of whose `blocks` lie at their planned addresses.

    Attributes:
        grown_bytes: of the peak from the third step to the last.
        apply_status: of `vdnnsim apply`, 0 unless more than the limit was reserved, in the first step too.
    """

    model: str
    limit_bytes: int
    promised_bytes: int
    peak_bytes: int
    reserved_bytes: int
    grown_bytes: int
    blocks: int
    in_place: int
    left_plan: int
    apply_promised_bytes: int
    apply_peak_bytes: int
    apply_reserved_bytes: int
    apply_status: int

    @property
    def cells(self) -> tuple[str, ...]:
        """Its cells of the page."""
        gib = (f"{each / GIB:.3f}" for each in (self.limit_bytes, self.promised_bytes, self.peak_bytes))
        of_apply = (self.apply_promised_bytes, self.apply_peak_bytes, self.apply_reserved_bytes)
        return (
            *(self.model, *gib, f"{self.reserved_bytes / GIB:.3f}", str(self.grown_bytes)),
            *(f"{self.in_place} of {self.blocks}", *(f"{each / GIB:.3f}" for each in of_apply)),
            str(self.apply_status),
        )


COLUMNS: Final = tuple(each.name for each in fields(Row))
_HEADER: Final = (
    *("model", "limit", "promised", "allocated", "reserved", "growth, B", "blocks in place"),
    *("`apply`: promised", "allocated", "reserved", "exit"),
)
_ABOUT: Final = (
    f"Written by `python -m reports.planning.live` on a pretended RTX 4090. {STEPS} steps of models of "
    f"[the table](transformers.md) with a {('half', 'third', 'quarter')[PART - 2]} of its batches, with fused AdamW, "
    f"in {SHARE:.0%} of what the plain loop allocates, of ViT-L/16 in {SHARES['ViT-L/16']:.0%}; memory in GiB. "
    "`reserved` is the most that PyTorch reserved, the limit of which is what a plan must keep. Growth is that of a "
    "step's peak, from the third step to the last. A block of more than 1 MiB is in place where the loop's fourth step "
    "has it at the address in its segment that the plan gave it; from the first request of another size on none is "
    "counted. `apply` is the command, on a script that trains the same model, beside what it printed; memory is that "
    "of its steps from the second on. It exits with 5 where more than the limit was reserved at any time, as before "
    "the first step under a plan."
)


def trained(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return a model on the GPU and inputs on the host."""
    model = MODELS[name]
    with torch.device("cuda"):
        made = model.make()
    inputs = tuple(each[: len(each) // PART] for each in model.inputs())
    return made.to(torch.bfloat16) if model.precision == "bfloat16" else made, inputs


def train(
    name: str,
    model: nn.Module,
    inputs: Sequence[Tensor],
    steps: int,
    applied: Callable[[nn.Module], AbstractContextManager[Any]] = lambda _: nullcontext(),
    begins: Callable[[int], object] = lambda _: None,
) -> list[tuple[int, int]]:
    """Train as users do, and return the peaks of allocated and of reserved bytes in each step, which `begins`."""
    optimizer, peaks = torch.optim.AdamW(model.parameters(), fused=True), list[tuple[int, int]]()
    for step in range(1, steps + 1):
        begins(step)
        torch.cuda.reset_peak_memory_stats()
        batch = [each.cuda() for each in inputs]
        with applied(model):
            with torch.autocast("cuda", torch.bfloat16, enabled=MODELS[name].precision == "amp_bfloat16"):
                loss = model(*batch)
            loss.backward()
        del batch
        optimizer.step()
        optimizer.zero_grad()
        peaks.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
    return peaks


def row_of(name: str) -> Row:
    """Return the row of a model."""
    model, inputs = trained(name)
    limit = int(SHARES.get(name, SHARE) * max(train(name, model, inputs, 2))[0])
    torch.cuda.empty_cache()
    made = plan(
        *(model, inputs),
        hardware=CARD,
        memory=f"{limit} B",
        policy="optimal(time_limit=30s)",
        loss=lambda loss: loss,
        precision=MODELS[name].precision,
        optimizer="adamw_fused",
    )
    entries = list[Mapping[str, Any]]()

    def record(step: int) -> None:
        if step == TRACED:
            torch.cuda.memory._record_memory_history(context=None)  # noqa: SLF001 - so documented
        elif step == TRACED + 1:
            entries.extend(torch.cuda.memory._snapshot()["device_traces"][0])  # noqa: SLF001
            torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001

    peaks = train(name, model, inputs, STEPS, made.apply, record)
    segments = torch.cuda.memory._snapshot()["segments"]  # noqa: SLF001
    planned, live = blocks_of_plan(made.predicted.trace), blocks_of_loop(entries)
    of_apply = _applied(name, limit)
    return Row(
        *(name, limit, made.predicted.metrics.allocated_bytes),
        *(max(each[0] for each in peaks), max(each[1] for each in peaks), peaks[-1][0] - peaks[2][0]),
        *(max(len(planned), len(live)), at_planned_addresses(planned, live, segments)),
        *(sum(bool(each.departure) for each in made.loop.steps), *of_apply),
    )


def _applied(name: str, limit: int) -> tuple[int, int, int, int]:
    """Run the script by `vdnnsim apply`; return what it promised, allocated and reserved, and its exit status."""
    script = (sys.executable, "-m", "reports.planning.live", "--train", name)
    asked = ("--memory", f"{limit} B", "--hardware", CARD, "--policy", "optimal(time_limit=30s)")
    main = "from vdnnsim.cli import main; main()"
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", main, "apply", *asked, "--", *script], capture_output=True, text=True, check=False
    )
    promised = re.search(r": ([\d.]+ \w+) at most", done.stderr)
    if promised is None:
        raise SystemExit(done.stderr)
    allocated, reserved = json.loads(done.stdout)
    return int(parse_quantity(promised[1], Dimension.BYTES)), allocated, reserved, done.returncode


def live_page(rows: Sequence[Row]) -> str:
    """Return the page."""
    return page(
        (
            Heading("Transformers under a plan, step by step", 1),
            *(Ready(_ABOUT), Ready(WHAT_IT_PROVES)),
            table(_HEADER, [row.cells for row in rows], 1),
        )
    )


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path(__file__).parent, help="Where to write.")
@click.option("--train", "script", type=click.Choice(NAMES), help="Train this model, and print what it took.")
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
def main(out: Path, script: str | None, names: Sequence[str]) -> None:
    """Train the models of the page, or some of them."""
    if script is not None:
        # Without the first step, which runs without a plan.
        _, *peaks = train(script, *trained(script), STEPS)
        click.echo(json.dumps([max(each) for each in zip(*peaks, strict=True)]))
        return
    path = out / "live.csv"
    for name in names or NAMES:
        row = row_of(name)
        click.echo("  ".join(row.cells), err=True)
        rows = [*(each for each in read_rows(path, Row) if each.model != name), row]
        rows.sort(key=lambda each: NAMES.index(each.model))
        write_csv(path, COLUMNS, map(astuple, rows))
        (out / "live.md").write_text(live_page(rows))


if __name__ == "__main__":
    main()
