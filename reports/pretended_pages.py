"""Pages on a pretended GPU: rates set and found, and trials of training scripts.

    python -m reports.pretended_pages card --hardware h100_sxm --profile card.yaml --out reports/validation/pretended
    python -m reports.pretended_pages trials reports/validation/pretended

`--profile` is what `vdnnsim calibrate --gpu 0` wrote on the pretended card, `--validation` the `validation.csv` of
`vdnnsim validate --gpu 0` there. The tables of the trials are written by `reports.trials`.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click

from calibration.pretend.card import ASSUMED_CONTEXT_BYTES, Card, card_of
from reports.trials import off
from vdnnsim.errors import InputError
from vdnnsim.files.atomic import replace_files
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Server
from vdnnsim.report.document import Block, Bullets, Definitions, Heading
from vdnnsim.report.markdown import Ready, escape, page, table
from vdnnsim.units import MIB, ElementType, format_seconds

Row = dict[str, str]

WHAT_IT_PROVES = (
    "This proves PyTorch's host code, memory and order on real addresses, and no kernel's speed: the GPU was "
    "pretended, its kernels computed nothing and lasted as long as they were told to."
)

_HOW_LONG = (
    "By `make test-pretend`, whose tests cut `calibrate` and `validate` short: few sizes, two networks, four policies. "
    "[Training scripts, and what others measured](trials.md) stand on a page of their own."
)

_WHY_OFF = (
    "Copies, products and pinning last what was set. What a kernel of PyTorch's moves through device memory nobody "
    "tells the runtime, which takes for each thread what elementwise kernels move, 64 bytes."
)

_COLUMNS = (
    "network",
    "batch_size",
    "memory_share",
    "policy",
    "outcome",
    "order",
    "requested_error",
    "simulated_reserved_bytes",
    "measured_reserved_bytes",
)
"""Of `validation.csv`, those that a pretended GPU says something of."""


def report_text(card: Card, found: Server, validated: Sequence[Row]) -> str:
    """Return the page of a card: what a calibration found of it, and the rows of a validation, if there are any."""
    compared: tuple[str | Block, ...] = ()
    if validated:
        rows = [[row[name] for name in _COLUMNS] for row in validated]
        compared = (Heading("What a validation compared"), table(_COLUMNS, rows))
    return page(
        (
            Ready(WHAT_IT_PROVES),
            Heading("What was run"),
            Definitions((("profile", card.profile), *found.provenance)),
            Ready(_HOW_LONG),
            Heading("Rates: set, and found by `vdnnsim calibrate --gpu 0`"),
            table(("figure", "set", "found", "off by"), rate_rows(card, found), 1),
            Ready(_WHY_OFF),
            *compared,
        )
    )


def rate_rows(card: Card, found: Server) -> list[tuple[str, str, str, str]]:
    """Return a row for each figure that was set, in SI units but for durations, as texts."""
    link, host = found.link, found.host
    rates = (
        ("float32, FLOP/s", card.flop_per_s, found.gpu.flop_per_s[ElementType.FLOAT32]),
        ("H2D, B/s", card.link.h2d_bytes_per_s, link.h2d_bytes_per_s),
        ("D2H, B/s", card.link.d2h_bytes_per_s, link.d2h_bytes_per_s),
        ("device memory, B/s", card.dram_bytes_per_s, found.gpu.dram_bytes_per_s),
        ("pinning, B/s", card.host.pin_bytes_per_s, host.pin_bytes_per_s),
    )
    durations = (
        ("latency of a copy", card.link.latency_s, link.latency_s),
        ("latency of pinning", card.host.pin_latency_s, host.pin_latency_s),
    )
    return [
        *((name, f"{was_set:.4g}", f"{is_found:.4g}", _off(was_set, is_found)) for name, was_set, is_found in rates),
        *(
            (name, format_seconds(was_set), format_seconds(is_found), _off(was_set, is_found))
            for name, was_set, is_found in durations
        ),
    ]


def _off(was_set: float, is_found: float) -> str:
    return "-" if was_set == 0 else f"{100 * (is_found / was_set - 1):+.2f} %"


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV by the names of its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


_SHOWN = (
    "script",
    "card",
    "allocated, MiB",
    "reserved, MiB",
    "driver, MiB",
    "steady from step",
    "predicted step, ms",
    "simulated allocated",
    "simulated reserved",
    "note",
)
_WHY_RESERVED = (
    "Of cuDNN's kernels for a convolution, the simulator takes the fastest by the profile, PyTorch the first that "
    "cuDNN's heuristics name. Their workspaces differ, and with them what is reserved, by up to a sixth; for "
    "VGG-16 (128) in what is allocated, too."
)
_ASSUMED = (
    "Assumed of the training script of timm: its defaults, SGD with Nesterov momentum, float32 with TF32, channels "
    "first, labels smoothed, a batch prefetched, the image size of each model's configuration. Not done: the trial of "
    "all of cuDNN's algorithms (`--benchmark` of the script here), which takes minutes a network on a CPU."
)


def trials_page(folder: Path) -> str:
    """Return what the tables of a folder say, as Markdown."""
    published = read_rows(folder / "published.csv")
    return page(
        (
            Heading("Scripts on pretended cards", 1),
            Ready(WHAT_IT_PROVES),
            Heading("PyTorch's allocator beside `memory_model: pytorch`: random traces"),
            _as_it_is(folder / "random_traces.csv"),
            Heading("The same for plans of all policies, and races between their streams"),
            _as_it_is(folder / "plans.csv"),
            Heading("Training scripts as users write them"),
            _trial_table(folder / "scripts.csv"),
            Heading("What nvidia-smi would show on an A100 of 40 GB, training with Adam"),
            _trial_table(folder / "networks.csv"),
            escape(_WHY_RESERVED),
            Heading("Beside what others measured"),
            escape(_ASSUMED),
            Bullets(tuple(_findings(published))),
            table(
                ("model", "batch", "published, MiB", "driver, MiB", "off", "allocated, MiB", "reserved, MiB"),
                [
                    (
                        row["model"],
                        row["batch"],
                        row["published_driver_mib"],
                        row["driver_mib"] if row["outcome"] == "ends" else row["outcome"],
                        f"{float(row['driver_off']):+.0%}" if row["outcome"] == "ends" else "",
                        row["allocated_mib"],
                        row["reserved_mib"],
                    )
                    for row in published
                ],
                1,
            ),
        )
    )


def _as_it_is(path: Path) -> Ready:
    rows = read_rows(path)
    return table(tuple(rows[0]), [tuple(row.values()) for row in rows], 1)


def _trial_table(path: Path) -> Ready:
    def share(text: str) -> str:
        return f"{float(text):+.1%}" if text else ""

    return table(
        _SHOWN,
        [
            (
                row["script"],
                row["hardware"],
                *(str(int(row[name]) >> 20) for name in ("allocated_bytes", "reserved_bytes", "driver_bytes")),
                row["steady_from_step"] if row["outcome"] == "ends" else row["outcome"],
                f"{1e3 * float(row['predicted_step_s']):.1f}",
                share(row["allocated_off"]),
                share(row["reserved_off"]),
                row["reason"],
            )
            for row in read_rows(path)
        ],
        2,
    )


def _findings(published: list[Row]) -> list[str]:
    """Return what the rows that ended say together; a constant that would explain them is said, and never used."""
    ended = [row for row in published if row["outcome"] == "ends"]
    theirs = [int(row["published_driver_mib"]) for row in ended]
    ours = [int(row["driver_mib"]) for row in ended]
    least = sorted(zip(theirs, ours, strict=True))[: len(ended) // 2]
    more = median(one - another for one, another in least)
    error = median(abs(off(one, another)) for one, another in zip(ours, theirs, strict=True))
    shifted = median(abs(off(one + round(more), another)) for one, another in zip(ours, theirs, strict=True))
    unfit = [f"{row['model']} ({row['batch']})" for row in published if row["outcome"] != "ends"]
    said = (
        f"{len(ended)} of {len(published)} train to their end; the driver's view is off by {error:.0%} in the median, "
        "almost always too small."
    )
    context = (
        f"The smaller half of them, whatever the network, lacks {more:.0f} MiB in the median. That is no tensor: with "
        f"the context that is assumed here, a context of {more + ASSUMED_CONTEXT_BYTES / MIB:.0f} MiB, as of a CUDA "
        f"that loads all kernels at its start, would leave {shifted:.0%} in the median. Nobody published which it was, "
        "so nothing here was set by it."
    )
    larger = (
        f"Do not fit here and were published: {', '.join(unfit) or 'none'}; today's timm configures some models with "
        "larger images than it did."
    )
    return [said, context, larger]


@click.group()
def main() -> None:
    """Write a page on a pretended GPU."""


@main.command()
@click.option("--hardware", required=True, metavar="NAME", help="The profile of the card that was pretended.")
@click.option("--profile", required=True, type=click.Path(path_type=Path), help="What `calibrate` wrote.")
@click.option("--validation", type=click.Path(path_type=Path), help="The validation.csv of `validate`.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder of the page.")
def card(hardware: str, profile: Path, validation: Path | None, out: Path) -> None:
    """Compare what was set with what a calibration and a validation found."""
    try:
        rows = [] if validation is None else read_rows(validation)
        text = report_text(card_of(read_profile(find_profile(hardware, Path()))), read_profile(profile), rows)
        replace_files(out, {"README.md": text.encode()})
    except (InputError, OSError) as failure:
        sys.exit(str(failure))


@main.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def trials(folder: Path) -> None:
    """Write trials.md beside the tables of a folder."""
    replace_files(folder, {"trials.md": trials_page(folder).encode()})


if __name__ == "__main__":
    main()
