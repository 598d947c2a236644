"""The report of a pretended GPU: what was set beside what a calibration found, and what a validation compared.

    python -m tests.pretend.rates_page --hardware h100_sxm --profile card.yaml --out reports/validation/pretended

`--profile` is what `vdnnsim calibrate --gpu 0` wrote on the pretended card, `--validation` the `validation.csv` of
`vdnnsim validate --gpu 0` there.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from calibration.pretend.card import Card, card_of
from vdnnsim.errors import InputError
from vdnnsim.files.atomic import replace_files
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Server
from vdnnsim.report.document import Block, Definitions, Heading
from vdnnsim.report.markdown import Ready, page, table
from vdnnsim.units import ElementType, format_seconds

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


def report_text(card: Card, found: Server, validated: Sequence[dict[str, str]]) -> str:
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


@click.command()
@click.option("--hardware", required=True, metavar="NAME", help="The profile of the card that was pretended.")
@click.option("--profile", required=True, type=click.Path(path_type=Path), help="What `calibrate` wrote.")
@click.option("--validation", type=click.Path(path_type=Path), help="The validation.csv of `validate`.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder of the report.")
def main(hardware: str, profile: Path, validation: Path | None, out: Path) -> None:
    """Write the report of a pretended GPU."""
    try:
        card = card_of(read_profile(find_profile(hardware, Path())))
        rows: list[dict[str, str]] = []
        if validation is not None:
            with validation.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        replace_files(out, {"README.md": report_text(card, read_profile(profile), rows).encode()})
    except (InputError, OSError) as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
