"""The command `calibrate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.devices import DEVICE, GPU, DeviceKind, opened
from vdnnsim.cli.options import FilePath, prints_table
from vdnnsim.cli.output import Output
from vdnnsim.errors import InputError

if TYPE_CHECKING:
    from calibration.measure.calibrate import Calibration, Calibrator
    from calibration.measure.journal import Journal
    from vdnnsim.units import ElementType

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
@click.option("--out", metavar="PROFILE", type=FilePath(), help="Where to write; by default hw_profiles/<device>.yaml.")
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

    Interrupted, it keeps what was measured, and the same command goes on from there. Without networks it measures those
    of the vDNN paper and ResNet-50, on a CPU three tiny ones. No setting of the machine is changed.
    """
    from calibration.measure.subjects import selected_workloads
    from vdnnsim.report.document import plain_table
    from vdnnsim.report.result_table import ResultTable

    _check(batch_sizes)
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
    talk = f"wrote {wrote}; scenarios name it as `hardware: {name}`"
    table = ResultTable(COLUMNS, rows, plain_table(COLUMNS, rows, output.has_all))
    output.show(table, *warning_lines(result), talk)


def _element_type(name: str) -> "ElementType":
    from vdnnsim.files.messages import not_one_of
    from vdnnsim.units import ElementType

    # TF32 is no type of maps, but how products of float32 are computed: --tf32.
    names = [each.value for each in ElementType if each is not ElementType.TF32]
    if name not in names:
        raise InputError(f"--element-type: {not_one_of(name, names, 'an element type')}")
    return ElementType(name)


def _check(batch_sizes: Sequence[int]) -> None:
    for size in batch_sizes:
        if not 1 <= size <= _LARGEST_BATCH:
            raise InputError(f"--batch-size: found {size}, expected an integer from 1 to {_LARGEST_BATCH}")


def _measured(calibrator: "Calibrator") -> "Calibration":
    """Measure behind a bar of progress; whatever ends it early, say what was kept."""
    from vdnnsim.cli.progress import ProgressBar

    with calibrator.journal() as journal:
        if journal.begun_anew is not None:
            click.echo(f"begins anew, and not where an earlier run ended: {journal.begun_anew}", err=True)
        if len(journal):
            click.echo(f"goes on from {len(journal)} measurements of an earlier run", err=True)
        try:
            with ProgressBar() as bar:
                return calibrator.calibrate(journal, bar)
        except BaseException:
            _say_what_is_kept(journal)
            raise


def _say_what_is_kept(journal: "Journal") -> None:
    if len(journal):
        click.echo(
            f"{len(journal)} measurements are kept in {journal.path}; the same command goes on from there", err=True
        )
    else:
        journal.remove()
