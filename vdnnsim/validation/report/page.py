"""`README.md` of a validation: requirements, rows, provenance, and what is not proven."""

from collections.abc import Iterable, Mapping, Sequence

from vdnnsim.report import markdown
from vdnnsim.report.document import Block, Definitions, Heading, Picture, Prose, plain_table, section
from vdnnsim.report.findings import shared
from vdnnsim.units import format_seconds
from vdnnsim.validation.method import Method
from vdnnsim.validation.report.tables import COLUMNS, HEADER, summary_cells
from vdnnsim.validation.row import Outcome, Row, compared, requirements
from vdnnsim.validation.validate import Validation

_PACED_PROOF = """\
Proven, where the table above says so: kernels and copies run in the order that the simulator says, each waits for what
the plan makes it wait for, copies hide behind kernels and kernels wait for copies as simulated, and the device is asked
for exactly the bytes that the plan states.

Not proven: the cost model. How long each kernel and copy takes was given to the device and to the simulator alike; the
device did its real work and then waited until the given time had passed. So these iteration times say nothing about how
well kernel times were calibrated or predicted, and rows that were never calibrated are as good as the others.

Not proven: anything about a GPU, such as how kernels and copies slow each other down, what its host spends to issue
them, and how PyTorch's caching allocator rounds and keeps memory."""

_FREE_PROOF = """\
Proven, where the table above says so: iteration time, stalls and memory of these plans on this machine, with this
software, at the clocks that it ran at. Rows marked as calibrated stand on kernel times that were measured one by one
on this machine; in the others many kernels were never measured, and a fitted roofline predicts their time.

Not proven: other machines, other versions of the driver, CUDA, cuDNN and PyTorch, several GPUs, half precision, and
iterations with an optimizer, which the papers leave out too."""

_NEVER_PROVEN = """\
Not proven either: the workspaces that a profile alone predicts for kernels that were never measured. A plan that is to
be executed counts what the device's library states of them."""

_READING = """\
Time, stalls and memory: measured, then simulated; memory is the most that was asked for at once. A row is calibrated
where kernels that make up at least 95 % of its kernel time were measured one by one. validation.csv has all digits,
stalls by cause, allocated and reserved bytes."""

_UNGIVEN = """\
One run of each plan as fast as this CPU went, beside what the calibrated times say. Whatever else ran on the machine is
in these numbers: they are reported and never judged."""


def page_text(validation: Validation, pictures: Mapping[str, str], warnings: Sequence[str]) -> str:
    """Return the page; `pictures` has the title of each by file name."""
    judged = requirements(validation.rows, validation.method.tolerance)
    paced = validation.method.pacing is not None
    verdict = [(each.name, each.required, each.found, "yes" if each.holds else "NO") for each in judged]
    failed = [each.name for each in judged if not each.holds]
    conclusion = f"Does not hold: {', '.join(failed)}." if failed else "Everything that is required holds."
    broken = [f"{each.name}: {row.label}, {row.task.label}{_reason(row)}" for each in judged for row in each.broken_by]
    decided = [row for row in validation.rows if row.decision and not row.profiled_on_device]
    decisions = [f"{row.task.label}: {row.decision}" for row in decided]
    return markdown.page(
        (
            Heading(f"Measured against simulated on {validation.server.name}", 1),
            Prose(_introduction(validation)),
            Prose(conclusion, strong=True),
            plain_table(("what", "required", "found", "holds"), verdict, left=4),
            *section("Which rows break a requirement?", broken),
            *(Picture(text, name) for name, text in pictures.items()),
            Heading("What does this prove, and what not?"),
            Prose(_PACED_PROOF if paced else _FREE_PROOF),
            Prose(_NEVER_PROVEN),
            Heading("What came of every row?"),
            plain_table(HEADER, summary_cells(validation.rows), left=3),
            Prose(_READING),
            *section("What was not compared, and why?", _notes(validation.rows)),
            *section("Does vdnn_dyn decide alike when it profiles on the device?", decisions),
            *(_raw(validation.rows) if paced else ()),
            *section("What was it run on?", _provenance(validation, warnings)),
            Heading("What do the columns of validation.csv mean?"),
            Definitions(tuple((column.name, column.meaning) for column in COLUMNS)),
        )
    )


def _introduction(validation: Validation) -> str:
    rows, method = validation.rows, validation.method
    under_all = "; ".join(task.label for task in method.tasks if not task.paper_alone)
    others = "; ".join(task.label for task in method.tasks if task.paper_alone)
    said_of = (f"every policy on {under_all}", f"those of the vDNN paper on {others}")
    said = " and ".join(text for text, labels in zip(said_of, (under_all, others), strict=True) if labels)
    return (
        f"{len(rows)} rows: {said}. Each policy wrote one plan of one training iteration; "
        f"{validation.device} executed it, the simulator replayed it from the profile "
        f"{validation.server.name}. {_how(method)}"
    )


def _how(method: Method) -> str:
    if method.pacing is None:
        return (
            f"After a warm-up each plan ran {method.free_runs} times, short ones more often, and the run of median "
            "duration counts."
        )
    stretches = ", ".join(f"{stretch:g}" for stretch in method.pacing.stretches)
    return (
        f"Durations were given to both sides: {method.pacing.describe()}. A run that misses is followed by another, "
        f"and the closest one counts; the durations of these runs are multiplied by {stretches}, for whatever shares "
        "the machine weighs less in longer ones."
    )


def _reason(row: Row) -> str:
    if row.note or row.order_fault:
        return f": {row.order_fault or row.note}"
    if row.time_error is None:
        return ""
    return f": time {100 * row.time_error:+.1f} %, memory {100 * (row.memory_error or 0.0):+.2g} %"


def _notes(rows: Iterable[Row]) -> tuple[str, ...]:
    labels = shared(
        (("" if row.outcome is Outcome.RAN else f"{row.outcome.value}: ") + row.note, f"{row.label}, {row.task.label}")
        for row in rows
        if row.outcome is not Outcome.RAN or row.note
    )
    return tuple(f"{'; '.join(names)}: {reason}" for reason, names in labels.items())


def _raw(rows: Sequence[Row]) -> tuple[Block, ...]:
    lines = []
    for row, raw in ((row, row.raw) for row in rows if row.raw is not None):
        times = format_seconds(raw.measured_s), format_seconds(raw.simulated_s)
        lines.append((row.task.label, row.label, *times, f"{100 * (raw.simulated_s / raw.measured_s - 1):+.0f} %"))
    header = ("network", "policy", "time", "simulated", "error")
    table = plain_table(header, lines, left=2)
    return (Heading("And without given durations?"), Prose(_UNGIVEN), table) if lines else ()


def _provenance(validation: Validation, warnings: Sequence[str]) -> tuple[str, ...]:
    return (
        *(f"{name}: {text}" for name, text in validation.provenance),
        *(f"warning: {each}" for each in warnings),
        *(f"input {name}, SHA-256 {sha256}" for name, sha256 in validation.sources),
        f"rows with both sides: {len(compared(validation.rows))} of {len(validation.rows)}; run.json has every number",
    )
