"""The command `validate`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.devices import DEVICE, GPU, DeviceKind, opened
from vdnnsim.cli.options import CSV, FilePath
from vdnnsim.cli.output import check_file, check_folder, has_all, print_result
from vdnnsim.errors import ProfileError

if TYPE_CHECKING:
    from calibration.devices.port import Device
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.validation.validate import Validation

_LEFT_OUT_FIRST = ("calibrated", "simulated", "memory", "simulated", "stalls", "error", "simulated")
_FOLDER = Path("reports") / "validation"


@click.command()
@GPU
@DEVICE
@click.option(
    "--profile", metavar="PROFILE", help="The device's own profile; by default the one that `calibrate` writes for it."
)
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/validation/<profile>/.")
@CSV
def validate(gpu: int | None, kind: DeviceKind, profile: str | None, out: Path | None, csv_file: Path | None) -> None:
    """Execute plans of every policy on a device, replay the same plans, and compare; exit with 3 beyond the tolerance.

    A GPU runs as fast as it goes. The CPU is told how long to take for each kernel and copy, and the simulator is told
    the same: that proves order, overlap, stalls and memory, and not the kernel times.
    """
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.document import plain_table
    from vdnnsim.report.folder import refuse_foreign
    from vdnnsim.validation.report.tables import HEADER, cells, column_names, summary_cells
    from vdnnsim.validation.report.write import VALIDATION_WRITER, write_validation
    from vdnnsim.validation.validate import differences
    from vdnnsim.validation.verdict import requirements

    with opened(kind, gpu) as device:
        machine = _profile(profile, device, kind)
        folder = _FOLDER / machine.server.name if out is None else out
        check_folder(folder)
        refuse_foreign(folder, ("README.md", "validation.csv", "run.json"), VALIDATION_WRITER)
        if csv_file is not None:
            check_file(csv_file)
        validation = _validated(device, machine, kind)
    warnings = differences(validation.server, validation.provenance)
    if csv_file is not None:
        write_csv(csv_file, column_names(), [cells(row) for row in validation.rows])
    files = write_validation(validation, warnings, folder)
    judged = requirements(validation.rows, validation.method.tolerance)
    print_result(
        plain_table(HEADER, summary_cells(validation.rows), has_all(csv_file), _LEFT_OUT_FIRST),
        *(f"warning: {each}" for each in warnings),
        *(f"{'holds' if each.holds else 'FAILS'}: {each.name} {each.required}: {each.found}" for each in judged),
        f"wrote {len(files)} files to {folder}/; read {folder / 'README.md'} first",
        piped_width=200,
    )
    if not all(each.holds for each in judged):
        sys.exit(3)


def _profile(name: str | None, device: "Device", kind: DeviceKind) -> "Profile":
    from calibration.calibrate import profile_path
    from vdnnsim.hardware.profile import find_profile, load_profile

    if name is not None:
        return load_profile(find_profile(name, Path()))
    path = profile_path(None, device.name)
    if not path.is_file():
        how = "vdnnsim calibrate --device cpu" if kind == "cpu" else "vdnnsim calibrate"
        raise ProfileError(f"{path}: not found; `{how}` measures {device.name} and writes it")
    return load_profile(path)


def _validated(device: "Device", machine: "Profile", kind: DeviceKind) -> "Validation":
    from calibration.devices.arithmetic import arithmetic
    from calibration.devices.provenance import provenance
    from calibration.executor import DeviceLaboratory
    from calibration.kernels.cudnn_library import library_for
    from vdnnsim.cli.progress import ProgressBar
    from vdnnsim.policies.registry import known_policies
    from vdnnsim.validation.method import FREE_GPU, PACED_CPU
    from vdnnsim.validation.tasks import every_policy
    from vdnnsim.validation.validate import Validation, validation_rows

    kernels = machine.server.kernels
    tf32, channels_last = (kernels.tf32, kernels.channels_last) if kernels else (False, False)
    method, policies = PACED_CPU if kind == "cpu" else FREE_GPU, every_policy(known_policies())
    library = library_for(device.torch_device, channels_last=channels_last, tf32=tf32)
    laboratory = DeviceLaboratory(device, library, keeps_results=False)
    with arithmetic(tf32=tf32), ProgressBar() as bar:
        bar.expect(sum(len(task.chosen(policies)) for task in method.tasks))
        rows = validation_rows(laboratory, machine.server, method, policies, bar.done)
    sources = [(machine.file, machine.sha256)]
    if kernels is not None:
        sources.append((kernels.table.name, kernels.sha256))
    # After the runs, for clocks are those under load.
    return Validation(device.name, provenance(device), machine.server, tuple(sources), method, rows)
