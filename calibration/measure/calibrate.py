"""Calibration of a device into a hardware profile that scenarios can name."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from calibration.devices.arithmetic import arithmetic
from calibration.devices.interface import Device
from calibration.kernels.interface import KernelLibrary
from calibration.measure.device_rates import RATE_STEPS, measure_rates, warm_up_compute
from calibration.measure.host_costs import host_steps, measure_host
from calibration.measure.journal import Journal
from calibration.measure.kernel_cases import KernelCase, distinct_cases
from calibration.measure.kernel_rows import KernelTable, smallest_kernel
from calibration.measure.link_times import link_steps, measure_link
from calibration.measure.machine import MeasuredMachine, Measurements, machine_of
from calibration.measure.session import Listener, Session
from calibration.measure.statistics import Sample
from calibration.measure.timing import Extent
from vdnnsim.cost.kernel_table import KernelRow, kernel_table_text
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import DeviceError, OutputError
from vdnnsim.hardware.copies import copy_table_text
from vdnnsim.hardware.server import PRETENDED, Server
from vdnnsim.hardware.write import copies_beside, kernels_beside, refuse_foreign_profile, write_profile

_FOLDER: Final = Path("hw_profiles")
_PASSING: Final = ("date", "sm_clock", "memory_clock", "pcie")
"""Parts of the provenance that may change between runs on one machine."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Arithmetic of a calibration, and the workloads whose kernels are measured, all of one element type."""

    workloads: tuple[Workload, ...]
    tf32: bool = False

    @property
    def networks(self) -> str:
        return ", ".join(f"{each.graph.name} ({each.batch_size})" for each in self.workloads)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        unsteady: samples of link and host with a large spread, by name.
        files: the written copies, kernels, profile.
    """

    server: Server
    rows: tuple[KernelRow, ...]
    unsteady: Mapping[str, Sample]
    warnings: tuple[str, ...]
    files: tuple[Path, ...]


def profile_path(out: Path | None, device_name: str) -> Path:
    """Return the path of the profile: as requested, or in `hw_profiles/` by the name of the device.

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


@dataclass(frozen=True, slots=True)
class Calibrator:
    """Measures one device.

    Attributes:
        extent: sizes and times of the measurements.
        provenance: returns hardware and software of a device, as (name, text).
        out: path of the profile, beside which its tables are written.
    """

    device: Device
    library: KernelLibrary
    settings: Settings
    extent: Extent
    provenance: Callable[[Device], tuple[tuple[str, str], ...]]
    out: Path

    @property
    def _is_gpu(self) -> bool:
        return self.device.torch_device.type == "cuda"

    @property
    def _is_pretended(self) -> bool:
        return PRETENDED in dict(self.provenance(self.device))

    def journal(self) -> Journal:
        """Open the journal beside the profile, before anything is measured.

        Raises:
            OutputError: it cannot be written, or the profile would overwrite a file written by hand.
        """
        refuse_foreign_profile(self.out)
        identity = {
            "device": self.device.name,
            "TF32": "on" if self.settings.tf32 else "off",
            "layout": "channels last" if self.library.channels_last else "channels first",
            **{name: text for name, text in self.provenance(self.device) if name not in _PASSING},
        }
        return Journal(self.out.with_name(f"{self.out.stem}.partial.jsonl"), identity)

    def calibrate(self, journal: Journal, listener: Listener) -> Calibration:
        """Measure the device and write its profile; the journal, of this or an interrupted run, is removed at the end.

        Raises:
            DeviceError: a required figure could not be measured; what was measured is kept.
            OutputError: the profile cannot be written.
        """
        session = Session(journal, listener)
        cases = distinct_cases(self.settings.workloads)
        extent = self.extent
        session.listener.expect(RATE_STEPS + host_steps(extent) + link_steps(extent) + len(cases))
        with arithmetic(tf32=self.settings.tf32):
            measured = self._measure_machine(session, cases)
            # An idle link shows its width and generation only after it was used.
            machine = machine_of(self.device, measured, self._link_name(), is_pretended=self._is_pretended)
            if self._is_pretended:
                session.warnings.append(
                    "the GPU is pretended: its figures are those that it was given, not measurements of a card"
                )
            if self._is_gpu and not machine.gpu.context_bytes:
                session.warnings.append(
                    "gpu.context is left out: others use the GPU, and the driver counts their memory with ours. A "
                    "network is simulated with that much more room than a real one has"
                )
            # Clocks may have dropped while the link was measured.
            warm_up_compute(self.device, session, extent, self.settings.workloads[0].element_type)
            rows = KernelTable(self.device, self.library, session, budget_s=extent.kernels_s).measure(cases)
        if all(row.seconds is None for row in rows):
            why = rows[0].note if rows else session.warnings[-1]
            raise DeviceError(f"{self.device.name}: none of {len(rows)} kernels could be measured: {why}")
        table, copies = kernel_table_text(rows), copy_table_text(each.row for each in measured.link)
        server = self._server(machine, table, copies)
        name = f"{self.device.name}, pretended" if self._is_pretended else self.device.name
        description = f"{name}, measured under {self.settings.networks}"
        files = write_profile(self.out, server, description, table, copies)
        journal.remove()
        return Calibration(server, rows, session.unsteady, tuple(session.warnings), files)

    def _measure_machine(self, session: Session, cases: Sequence[KernelCase]) -> Measurements:
        device, extent, element_type = self.device, self.extent, self.settings.workloads[0].element_type
        warm_up_compute(device, session, extent, element_type)
        rates = measure_rates(device, session, extent, element_type)
        with smallest_kernel(device, self.library, cases) as kernel:
            host = measure_host(device, session, extent, kernel)
        return Measurements(rates, measure_link(device, session, extent, rates), host)

    def _link_name(self) -> str:
        if not self._is_gpu:
            return "memory of the machine"
        pcie = dict(self.provenance(self.device)).get("pcie")
        return (
            "link to the host, which nvidia-smi does not name" if pcie is None else f"PCIe {pcie.partition(' seen')[0]}"
        )

    def _server(self, machine: MeasuredMachine, table: str, copies: str) -> Server:
        kernels = kernels_beside(self.out, table, tf32=self.settings.tf32, channels_last=self.library.channels_last)
        return Server(
            name=self.out.stem,
            gpu=machine.gpu,
            link=replace(machine.link, copies=copies_beside(self.out, copies)),
            host=machine.host,
            cost_model={},
            figures=machine.figures,
            kernels=kernels,
            # After the measurements, with the clocks under load.
            provenance=self.provenance(self.device),
        )
