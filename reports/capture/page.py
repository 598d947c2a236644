"""The page about the zoo's table."""

import csv
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from vdnnsim.report.document import Block, Heading, section
from vdnnsim.report.markdown import Ready, escape, page, table

PEAK_TOLERANCE = 0.005
"""Of a captured peak against the allocator's."""

_REQUIRED = {"captured": 0.95, "saved bytes exact, of the captured": 0.99, "peaks within 0.5 %, of the captured": 0.97}

_BUILT = (
    "Each model is built from its configuration, with random weights, and trains on a small batch. One iteration of it "
    "is captured as the CPU does it, with fake tensors, and run on the CPU with real ones, after an iteration that "
    "makes the states of the optimizer."
)
_SAVED = (
    "Saved bytes are the storages that autograd holds when backward begins, beside parameters, buffers and inputs. "
    "Measured twice, each time in an iteration of its own: by `saved_tensors_hooks`, and by a walk through the graph "
    "from the loss to what its nodes hold, or say to compiled autograd that they do. Exact is equal to both."
)
_PEAK = (
    "The peak is the most bytes that are given at once. Measured from every allocation of the CPU's allocator as "
    "PyTorch's profiler reports it, from before the model is made, with no hooks and no dispatch mode in the way. What "
    "the kernel of one operator takes and gives back is left out, for it is the CPU's own; with it, it stands in the "
    "table as `allocator_peak_bytes`."
)
_RECURRENT = (
    "Recurrent layers of PyTorch run without oneDNN: of its kernels nobody knows the workspace without running them. "
    "Models of the zoo that have no row have not been run."
)

Row = dict[str, str]


def zoo_page(folder: Path) -> str:
    """Return the page of the table in a folder."""
    with (folder / "zoo.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    ran = [row for row in rows if row["outcome"] != "not run"]
    captured = [row for row in ran if row["outcome"] == "captured"]
    versions = {part: None for row in rows for part in row["versions"].split(", ")}
    return page(
        (
            Heading("The zoo: captured without memory, held against real runs", 1),
            escape(f"{datetime.now(UTC):%Y-%m-%d}; {', '.join(sorted(versions))}; `python -m reports.capture`."),
            *map(escape, (_BUILT, _SAVED, _PEAK, _RECURRENT)),
            _shares(ran),
            Heading("By family"),
            table(
                ("family", "models", "captured", "saved bytes exact", "peaks within 0.5 %"),
                [
                    (family, *(str(len(each)) for each in _counted([row for row in ran if row["family"] == family])))
                    for family in dict.fromkeys(row["family"] for row in rows)
                ],
                1,
            ),
            *_listed("Not captured", [row for row in ran if row not in captured], _reason),
            *_listed("Saved bytes that are off", [row for row in captured if not is_exact(row)], _saved),
            *_listed("Peaks that are off by more than 0.5 %", [row for row in captured if not is_near(row)], _peak),
            *_listed("Not counted, for the real run failed", [row for row in rows if row not in ran], _reason),
            Heading("All that were captured"),
            escape("In KiB; peaks beside that of the allocator."),
            table(
                ("model", "operations", "saved", "peak", "off", "with scratch of kernels", "capture, s"),
                [
                    (
                        _name(row),
                        row["operations"],
                        *(f"{int(row[name]) / 1024:.0f}" for name in ("captured_saved_bytes", "captured_peak_bytes")),
                        f"{off(row):+.2%}",
                        f"{int(row['allocator_peak_bytes']) / 1024:.0f}",
                        row["capture_s"],
                    )
                    for row in captured
                ],
                1,
            ),
        )
    )


def is_exact(row: Row) -> bool:
    """Whether both instruments count the saved bytes that the capture states."""
    return row["captured_saved_bytes"] == row["hooked_saved_bytes"] == row["walked_saved_bytes"]


def off(row: Row) -> float:
    """By how much the captured peak is off."""
    return int(row["captured_peak_bytes"]) / int(row["measured_peak_bytes"]) - 1


def is_near(row: Row) -> bool:
    """Whether the captured peak is within the tolerance."""
    return abs(off(row)) <= PEAK_TOLERANCE


def _counted(ran: Sequence[Row]) -> tuple[list[Row], ...]:
    captured = [row for row in ran if row["outcome"] == "captured"]
    return [*ran], captured, [row for row in captured if is_exact(row)], [row for row in captured if is_near(row)]


def _shares(ran: Sequence[Row]) -> Ready:
    everything, captured, exact, near = (len(each) for each in _counted(ran))
    found = ((captured, everything), (exact, captured), (near, captured))
    return table(
        ("", "of all", "share", "required", "holds"),
        [
            (
                name,
                f"{part} of {whole}",
                f"{part / whole:.1%}",
                f"{share:.0%}",
                "yes" if part >= share * whole else "no",
            )
            for (name, share), (part, whole) in zip(_REQUIRED.items(), found, strict=True)
        ],
        1,
    )


def _listed(title: str, rows: Sequence[Row], said: Callable[[Row], str]) -> tuple[Block, ...]:
    return section(title, [f"{_name(row)}: {said(row)}" for row in rows])


def _name(row: Row) -> str:
    return f"{row['family']}: {row['model']}"


def _reason(row: Row) -> str:
    return row["reason"]


def _saved(row: Row) -> str:
    names = ("captured_saved_bytes", "hooked_saved_bytes", "walked_saved_bytes")
    return "captured {}, by hooks {}, in the graph {} bytes".format(*(row[name] for name in names))


def _peak(row: Row) -> str:
    return f"{off(row):+.2%}, captured {row['captured_peak_bytes']}, measured {row['measured_peak_bytes']} bytes"
