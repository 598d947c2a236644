"""Commands that use a real device: how it is named, and how it is opened."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import click

from vdnnsim.errors import DeviceError

if TYPE_CHECKING:
    from calibration.devices.interface import Device

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
    """Hold a device open; what may spoil a measurement is told on standard error.

    Raises:
        DeviceError: it is not there, or fails, or PyTorch is not there.
    """
    if importlib.util.find_spec("torch") is None:
        raise DeviceError(
            "PyTorch is not installed, and only with it a device can be used: pip install 'vdnnsim[calibrate]'"
        )
    # PyTorch's C++ reads it as it is loaded. Below errors it logs, amid the output, every allocation that a GPU refuses
    # (since 2.14), and that is a result here, told as such. Who sets the level wants to see more.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from calibration.devices.opening import device_errors, open_device

    with device_errors():
        device = open_device(kind, gpu, warn=lambda line: click.echo(f"warning: {line}", err=True))
        try:
            yield device
        finally:
            device.close()
