"""Commands on a real device: `calibrate` measures it, `validate` executes plans on it."""

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from vdnnsim.cli.options import out_option, prints_table
from vdnnsim.cli.output import Output, report_folder
from vdnnsim.errors import DeviceError, InputError

if TYPE_CHECKING:
    from calibration.devices.interface import Device
    from calibration.measure.calibrate import Calibration, Calibrator
    from vdnnsim.units import ElementType

DeviceKind = Literal["cuda", "cpu"]

GPU = click.option("--gpu", type=int, metavar="N", help="Number of the GPU as CUDA counts them; by default the first.")
DEVICE = click.option(
    "--device",
    "kind",
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="What to run on; the CPU behaves like a GPU of its own speed.",
)


@contextmanager
def opened(kind: DeviceKind, gpu: int | None) -> Iterator["Device"]:
    """Open a device, or raise DeviceError; warnings on noisy measurements go to standard error."""
    if importlib.util.find_spec("torch") is None:
        raise DeviceError("PyTorch is not installed; a device needs it: pip install 'vdnnsim[calibrate]'")
    # Read when PyTorch is loaded, which since 2.14 logs every failed allocation below this level.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from calibration.devices.opening import device_errors, open_device

    with device_errors():
        device = open_device(kind, gpu, warn=lambda line: click.echo(f"warning: {line}", err=True))
        try:
            yield device
        finally:
            device.close()


_LARGEST_BATCH = 1_000_000


@click.command()
@GPU
@DEVICE
@click.option(
    "--network", "networks", multiple=True, metavar="NAME", help="Measure the layers of NAME; may be repeated."
)
@click.option("--batch-size", "batch_sizes", multiple=True, type=int, metavar="N", help="Batch size; may be repeated.")
@click.option("--element-type", default="float32", show_default=True, metavar="TYPE", help="Of maps and weights.")
@click.option("--tf32", is_flag=True, help="Compute float32 products in TF32.")
@click.option("--channels-last", is_flag=True, help="Lay maps as N, H, W, C.")
@out_option("hw_profiles/<device>.yaml", "PROFILE")
@prints_table
def calibrate(  # noqa: PLR0913  # an argument for each option
    gpu: int | None,
    kind: DeviceKind,
    networks: Sequence[str],
    batch_sizes: Sequence[int],
    element_type: str,
    *,
    tf32: bool,
    channels_last: bool,
    out: Path | None,
    output: Output,
) -> None:
    """Measure a device, and write a hardware profile of it.

    If interrupted, it keeps what was measured, and the same command continues from there. Without networks it measures
    those of the vDNN paper and ResNet-50, on a CPU three tiny ones. No setting of the machine is changed.
    """
    from calibration.measure.kernel_cases import selected_workloads
    from vdnnsim.report.document import plain_table
    from vdnnsim.report.result_table import ResultTable

    for size in batch_sizes:
        if not 1 <= size <= _LARGEST_BATCH:
            raise InputError(f"--batch-size: found {size}, expected an integer from 1 to {_LARGEST_BATCH}")
    if tf32 and kind == "cpu":
        raise InputError("--tf32: the CPU has no TF32")
    workloads = selected_workloads(kind, networks, batch_sizes, _element_type(element_type))
    with opened(kind, gpu) as device:
        from calibration.devices.provenance import provenance
        from calibration.kernels.cudnn_library import library_for
        from calibration.measure.calibrate import Calibrator, Settings, profile_path
        from calibration.measure.summary import COLUMNS, summary_rows, warning_lines
        from calibration.measure.timing import extent_of

        path = profile_path(out, device.name)
        library = library_for(device.torch_device, channels_last=channels_last, tf32=tf32)
        settings = Settings(workloads, tf32)
        result = _measured(Calibrator(device, library, settings, extent_of(kind), provenance, path))
    rows = summary_rows(result)
    wrote = ", ".join(str(file) for file in result.files)
    name = path.stem if path.parent == Path("hw_profiles") else path
    notice = f"wrote {wrote}; scenarios name it as `hardware: {name}`"
    table = ResultTable(COLUMNS, rows, plain_table(COLUMNS, rows, output.has_all))
    output.show(table, *warning_lines(result), notice)


def _element_type(name: str) -> "ElementType":
    from vdnnsim.files.messages import not_one_of
    from vdnnsim.units import ElementType

    # TF32 is a mode of float32 products: --tf32.
    names = [each.value for each in ElementType if each is not ElementType.TF32]
    if name not in names:
        raise InputError(f"--element-type: {not_one_of(name, names, 'an element type')}")
    return ElementType(name)


def _measured(calibrator: "Calibrator") -> "Calibration":
    """Measure with a progress bar; where it ends early, report what was kept."""
    from vdnnsim.report.progress import ProgressBar

    with calibrator.journal() as journal:
        if journal.begun_anew is not None:
            click.echo(f"starts over instead of continuing an earlier run: {journal.begun_anew}", err=True)
        if len(journal):
            click.echo(f"continues from {len(journal)} measurements of an earlier run", err=True)
        try:
            with ProgressBar() as bar:
                return calibrator.calibrate(journal, bar)
        except BaseException:
            if len(journal):
                kept = f"{len(journal)} measurements are kept in {journal.path}"
                click.echo(f"{kept}; the same command continues from there", err=True)
            else:
                journal.remove()
            raise


@click.command()
@GPU
@DEVICE
@click.option(
    "--profile", metavar="PROFILE", help="The device's own profile; by default the one that `calibrate` writes for it."
)
@out_option("reports/validation/<profile>/")
@prints_table
def validate(gpu: int | None, kind: DeviceKind, profile: str | None, out: Path | None, output: Output) -> None:
    """Execute plans on a device, and compare the replay with them.

    A GPU runs at its own speed. The CPU takes a given time for each kernel and copy, and so does the simulator: that
    proves order, overlap, stalls and memory, but not the kernel times. Exits with 3 if a row is beyond the tolerance;
    an interrupted run reports what it has.
    """
    from vdnnsim.api.validation import profile_of, validation_on
    from vdnnsim.report.progress import ProgressBar
    from vdnnsim.validation.report.tables import validation_table
    from vdnnsim.validation.report.write import VALIDATION_WRITER, write_validation
    from vdnnsim.validation.row import requirements
    from vdnnsim.validation.validate import warnings_of

    with opened(kind, gpu) as device:
        machine = profile_of(device, kind, profile)
        folder = report_folder(out, f"validation/{machine.server.name}", VALIDATION_WRITER)
        with ProgressBar() as bar:
            validation = validation_on(device, kind, machine, bar.done, bar.expect)
    warnings = warnings_of(validation)
    written = write_validation(validation, warnings, folder)
    judged = requirements(validation.rows, validation.method.tolerance)
    output.show(
        validation_table(validation.rows, output.has_all),
        *(f"warning: {each}" for each in warnings),
        *(f"{'holds' if each.holds else 'FAILS'}: {each.name} {each.required}: {each.found}" for each in judged),
        f"wrote {len(written)} files to {folder}/; read {folder / 'README.md'} first",
        piped_width=200,
    )
    if validation.left:
        sys.exit(130)
    if not all(each.holds for each in judged):
        sys.exit(3)
