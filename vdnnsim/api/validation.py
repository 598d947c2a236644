"""`vdnnsim.validate`: plans executed on a device, compared to their replays."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vdnnsim.errors import ProfileError
from vdnnsim.report.result_table import ResultTable

if TYPE_CHECKING:
    from calibration.devices.interface import Device
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.validation.validate import Validation

Kind = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True, repr=False)
class ValidationResults(ResultTable):
    """Executions on a device and their replays; prints as the table of `vdnnsim validate`."""

    validation: "Validation"

    @property
    def holds(self) -> bool:
        """Whether every requirement is met."""
        from vdnnsim.validation.row import requirements

        judged = requirements(self.validation.rows, self.validation.method.tolerance)
        return all(each.holds for each in judged)


def validate(device: Kind = "cuda", gpu: int | None = None, profile: str | None = None) -> ValidationResults:
    """Execute plans of every policy on a device and replay them, as `vdnnsim validate`.

    Args:
        device: `cuda`, or `cpu`, with paced kernels and copies.
        gpu: its number as CUDA counts them; the first by default.
        profile: of the device; by default from `vdnnsim calibrate`.

    Returns:
        a row for each workload and policy: seconds of an iteration and bytes at its peak, measured and simulated.

    Raises:
        DeviceError: PyTorch or the device is missing.
        ProfileError: there is no such profile.
    """
    from calibration.availability import require_torch

    require_torch()
    from calibration.devices.opening import device_errors, open_device
    from vdnnsim.validation.report.tables import validation_table

    with device_errors():
        opened = open_device(device, gpu, warn=warnings.warn)
        try:
            found = validation_on(opened, device, profile_of(opened, device, profile), lambda _: None)
        finally:
            opened.close()
    table = validation_table(found.rows, "to_pandas() has all")
    return ValidationResults(table.columns, table.cells, table.shown, found)


def profile_of(device: "Device", kind: Kind, name: str | None = None) -> "Profile":
    """Return the profile of a device, by name or from `calibrate`, or raise ProfileError where there is none."""
    from calibration.measure.calibrate import profile_path
    from vdnnsim.hardware.profile import find_profile, load_profile

    if name is not None:
        return load_profile(find_profile(name, Path()))
    path = profile_path(None, device.name)
    if not path.is_file():
        how = "vdnnsim calibrate --device cpu" if kind == "cpu" else "vdnnsim calibrate"
        raise ProfileError(f"{path}: not found; `{how}` measures {device.name} and writes it")
    return load_profile(path)


def validation_on(
    device: "Device", kind: Kind, machine: "Profile", done: Callable[[str], None], expect: Callable[[int], object] = str
) -> "Validation":
    """Execute and replay plans on an open device.

    `done` is called with each finished task and policy, `expect` with their number.
    """
    from calibration.devices.arithmetic import arithmetic
    from calibration.devices.provenance import provenance
    from calibration.executor.executor import DeviceLaboratory
    from calibration.kernels.cudnn_library import library_for
    from vdnnsim.policies.registry import known_policies
    from vdnnsim.validation.method import FREE_GPU, PACED_CPU, every_policy
    from vdnnsim.validation.validate import Validation, validation_rows

    kernels = machine.server.kernels
    tf32, channels_last = (kernels.tf32, kernels.channels_last) if kernels else (False, False)
    method, policies = PACED_CPU if kind == "cpu" else FREE_GPU, every_policy(known_policies())
    library = library_for(device.torch_device, channels_last=channels_last, tf32=tf32)
    laboratory = DeviceLaboratory(device, library, keeps_results=False)
    left = sum(len(task.chosen(policies)) for task in method.tasks)
    expect(left)

    def ended(label: str) -> None:
        nonlocal left
        left -= 1
        done(label)

    with arithmetic(tf32=tf32):
        rows = validation_rows(laboratory, machine.server, method, policies, ended)
    sources = [(machine.file, machine.sha256)]
    if kernels is not None:
        sources.append((kernels.table.name, kernels.sha256))
    # After the runs, for clocks under load.
    return Validation(device.name, provenance(device), machine.server, tuple(sources), method, rows, left)
