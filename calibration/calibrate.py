"""Calibrate: measure a device, and write it down as a hardware profile that scenarios can name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibration.devices.port import Device
from calibration.journal import Journal
from calibration.kernels.port import KernelLibrary
from calibration.kernels.pytorch import reproducible
from calibration.measure.copy_file import copy_table_text
from calibration.measure.device_rates import RATE_STEPS, measure_rates
from calibration.measure.extent import Extent
from calibration.measure.host_costs import host_steps, measure_host
from calibration.measure.kernel_rows import KernelTable, smallest_kernel
from calibration.measure.link_times import LinkTimes, link_steps, measure_link
from calibration.measure.machine import Measurements, measured_server
from calibration.measure.session import Listener, Session
from calibration.measure.subjects import distinct_subjects
from vdnnsim.cost.kernel_file import kernel_table_text
from vdnnsim.cost.kernel_table import KernelRow
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import DeviceError, OutputError
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.write import kernels_beside, write_profile
from vdnnsim.replace import replace_file

_FOLDER: Final = Path("hw_profiles")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured, and how.

    Attributes:
        workloads: whose kernels; all of one element type.
        tf32: whether float32 products are computed in TF32.
        channels_last: whether maps lie as N, H, W, C.
    """

    workloads: tuple[Workload, ...]
    tf32: bool = False
    channels_last: bool = False

    @property
    def networks(self) -> str:
        """The networks for people, with their batch sizes."""
        return ", ".join(f"{each.graph.name} ({each.batch_size})" for each in self.workloads)


@dataclass(frozen=True, slots=True)
class Origins:
    """What is told of a machine that is measured.

    Attributes:
        link_name: what people call its link to the host.
        provenance: hardware and software as (name, text), for the profile.
        software: of that, what measurements of an earlier run must share to be of use.
    """

    link_name: str
    provenance: tuple[tuple[str, str], ...]
    software: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What came of it.

    Attributes:
        files: what was written, the profile last.
        warnings: what a user should know, a line each.
    """

    server: Server
    rows: tuple[KernelRow, ...]
    link: LinkTimes
    files: tuple[Path, ...]
    warnings: tuple[str, ...]


def profile_path(out: Path | None, device_name: str) -> Path:
    """Return where the profile goes: as asked for, or `hw_profiles/` and a name made of the device's.

    Raises:
        OutputError: no profile can have this name.
    """
    if out is None:
        return _FOLDER / f"{re.sub('[^a-z0-9]+', '_', device_name.lower()).strip('_')}.yaml"
    if out.suffix != ".yaml" or not _NAME.fullmatch(out.stem):
        raise OutputError(f"{out}: expected a name of letters, digits and any of _.- that ends in .yaml")
    if out.is_dir():
        raise OutputError(f"{out}: is a folder, expected the name of a file")
    return out


def open_journal(profile: Path, device: Device, settings: Settings, origins: Origins) -> Journal:
    """Return the journal beside a profile; it also shows, before anything is measured, whether one can write there.

    Raises:
        OutputError: one cannot.
    """
    identity = {
        "device": device.name,
        "TF32": "on" if settings.tf32 else "off",
        "layout": "channels last" if settings.channels_last else "channels first",
        **origins.software,
    }
    return Journal(profile.with_name(f"{profile.stem}.partial.jsonl"), identity)


def calibrate(
    device: Device,
    library: KernelLibrary,
    settings: Settings,
    origins: Origins,
    extent: Extent,
    journal: Journal,
    listener: Listener,
    out: Path,
) -> Calibration:
    """Measure a device and write its profile.

    Args:
        device: does nothing else meanwhile.
        library: its kernels.
        settings: what is measured.
        origins: what is told of the machine.
        extent: how much is measured.
        journal: of this or an interrupted run; it is removed at the end.
        listener: learns how far it has come.
        out: where the profile goes, its tables beside it.

    Raises:
        DeviceError: a figure that no profile can do without could not be measured; what was measured is kept.
        OutputError: the profile cannot be written.
    """
    subjects = distinct_subjects(settings.workloads)
    session = Session(journal, listener)
    listener.expect(RATE_STEPS + host_steps(extent) + link_steps(extent) + len(subjects))
    layout = settings.channels_last
    with reproducible(allow_tf32=settings.tf32):
        rates = measure_rates(device, session, extent, settings.workloads[0].element_type)
        with smallest_kernel(device, library, subjects, channels_last=layout) as kernel:
            host = measure_host(device, session, extent, kernel)
        link = measure_link(device, session, extent, rates)
        table = KernelTable(device, library, session, channels_last=layout, budget_s=extent.kernels_s)
        rows = table.measure(subjects)
    if all(row.seconds is None for row in rows):
        raise DeviceError(f"{device.name}: none of {len(rows)} kernels could be measured")
    text = kernel_table_text(rows)
    kernels = kernels_beside(out, text, tf32=settings.tf32, channels_last=layout)
    server = measured_server(
        out.stem,
        device,
        Measurements(rates, link, host),
        kernels,
        link_name=origins.link_name,
        provenance=origins.provenance,
    )
    copies = out.with_name(f"{out.stem}.copies.csv")
    replace_file(copies, copy_table_text(link).encode())
    written = write_profile(out, server, f"{device.name}, measured under {settings.networks}", text)
    journal.remove()
    return Calibration(server, rows, link, (copies, *written), tuple(session.warnings))
