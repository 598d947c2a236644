"""The command `validate`."""

import sys
from pathlib import Path

import click

from vdnnsim.cli.devices import DEVICE, GPU, DeviceKind, opened
from vdnnsim.cli.options import FilePath, prints_table
from vdnnsim.cli.output import Output, report_folder


@click.command()
@GPU
@DEVICE
@click.option(
    "--profile", metavar="PROFILE", help="The device's own profile; by default the one that `calibrate` writes for it."
)
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/validation/<profile>/.")
@prints_table
def validate(gpu: int | None, kind: DeviceKind, profile: str | None, out: Path | None, output: Output) -> None:
    """Execute plans on a device, and hold the replay against them.

    A GPU runs as fast as it goes. The CPU is told how long to take for each kernel and copy, and the simulator is told
    the same: that proves order, overlap, stalls and memory, and not the kernel times. Exits with 3 beyond the
    tolerance.
    """
    from vdnnsim.api.validation import profile_of, validation_on
    from vdnnsim.cli.progress import ProgressBar
    from vdnnsim.validation.report.tables import validation_table
    from vdnnsim.validation.report.write import VALIDATION_WRITER, write_validation
    from vdnnsim.validation.row import requirements
    from vdnnsim.validation.validate import differences

    with opened(kind, gpu) as device:
        machine = profile_of(device, kind, profile)
        files = ("README.md", "validation.csv", "run.json")
        folder = report_folder(out, f"validation/{machine.server.name}", files, VALIDATION_WRITER)
        with ProgressBar() as bar:
            validation = validation_on(device, kind, machine, bar.done, bar.expect)
    warnings = differences(validation.server, validation.provenance)
    written = write_validation(validation, warnings, folder)
    judged = requirements(validation.rows, validation.method.tolerance)
    output.show(
        validation_table(validation.rows, output.has_all),
        *(f"warning: {each}" for each in warnings),
        *(f"{'holds' if each.holds else 'FAILS'}: {each.name} {each.required}: {each.found}" for each in judged),
        f"wrote {len(written)} files to {folder}/; read {folder / 'README.md'} first",
        piped_width=200,
    )
    if not all(each.holds for each in judged):
        sys.exit(3)
