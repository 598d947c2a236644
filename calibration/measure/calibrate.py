"""Calibration of a device into a hardware profile that scenarios can name, and its summary."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
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
from calibration.measure.statistics import WARNED_SPREAD, Sample, percent
from calibration.measure.timing import Extent
from vdnnsim.cost.kernel_table import KernelRow, kernel_table_text
from vdnnsim.cost.measured import left_out_errors
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


COLUMNS: Final = ("what", "value", "how it was found")
_NAMED: Final = 5
"""Warnings of one kind that are listed; the tables have all."""


def summary_rows(calibration: Calibration) -> list[tuple[str, str, str]]:
    figures = [(figure.path, figure.text, figure.source) for figure in calibration.server.figures]
    return [*figures, *_kernels(calibration.rows), *_predictions(calibration)]


def warning_lines(calibration: Calibration) -> list[str]:
    """Return the warnings of a calibration, a line each; of many of one kind, the worst."""
    copies, kernels = (file.name for file in calibration.files[:2])
    samples = sorted(calibration.unsteady.items(), key=lambda item: -item[1].spread)
    unused = [row for row in calibration.rows if row.seconds is None]
    unsteady = sorted(
        (row for row in calibration.rows if row.seconds is not None and row.spread > WARNED_SPREAD),
        key=lambda row: -row.spread,
    )
    # Kernels that were run once are much slower than others, on purpose.
    remarked = [row for row in calibration.rows if row.seconds is not None and row.count > 1 and row.note]
    lines = [
        *calibration.warnings,
        *_worst(
            [f"{name}: {_judgement(sample)}" for name, sample in samples],
            f"unsteady measurements, of copies see {copies}",
        ),
        *_worst([f"{_text(row)}: {row.note}, so it is predicted" for row in unused], f"such kernels, see {kernels}"),
        *_worst(
            [f"{_text(row)}: spread {percent(row.spread)}" for row in unsteady], f"unsteady kernels, see {kernels}"
        ),
        *_worst([f"{_text(row)}: {row.note}" for row in remarked], f"kernels with remarks, see {kernels}"),
    ]
    return [f"warning: {line}" for line in lines]


def _worst(lines: list[str], rest: str) -> list[str]:
    return lines if len(lines) <= _NAMED else [*lines[:_NAMED], f"{len(lines) - _NAMED} further {rest}"]


def _judgement(sample: Sample) -> str:
    return f"{sample.runs}{'; not used where a profile can do without' if sample.is_refused else ''}"


def _text(row: KernelRow) -> str:
    return f"{row.shape.operator} of {row.shape.inputs_text}, {row.shape.phase.value}, {row.algorithm}"


def _kernels(rows: tuple[KernelRow, ...]) -> list[tuple[str, str, str]]:
    used = [row for row in rows if row.seconds is not None]
    shapes = len({row.shape for row in rows})
    spreads = sorted(row.spread for row in used)
    middle, worst = median(spreads), spreads[-1]
    runs = sum(row.count for row in used)
    return [
        ("kernels", f"{len(used)} of {len(rows)}", f"algorithms of {shapes} distinct shapes, in {runs} runs"),
        ("spread of kernels", percent(middle, digits=1), f"in the middle; {percent(worst)} at worst"),
    ]


def _predictions(calibration: Calibration) -> Iterator[tuple[str, str, str]]:
    """Return the error of predicting kernels from others; nothing where there are too few to leave one out."""
    if errors := left_out_errors(calibration.rows, calibration.server):
        error, bias, count = 100 * fmean(map(abs, errors)), 100 * fmean(errors), len(errors)
        how = f"mean absolute error, mean error {bias:+.0f} %, of {count} kernels each predicted from other layers"
        yield ("predictions", f"{error:.0f} %", how)
