"""The command `doctor`."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Final

import click

from vdnnsim.cli.options import prints_table
from vdnnsim.cli.output import Output
from vdnnsim.errors import DeviceError

_PACKAGES: Final = (
    *("click", "jinja2", "matplotlib", "msgspec", "numpy", "pyyaml", "rich", "scipy", "simpy"),
    *("pandas", "pyarrow", "distributed", "torchvision", "timm", "transformers", "nvidia-cudnn-frontend"),
)
_WORKS: Final = "works"


@click.command()
@prints_table
def doctor(output: Output) -> None:
    """Say which commands work here, and what the others lack."""
    import platform

    found = [("vdnnsim", _version("vdnnsim")), ("python", f"{platform.python_version()}, {platform.system()}")]
    found += [(name, version) for name in _PACKAGES if (version := _version(name))]
    lacking = _without("torch", "'vdnnsim[calibrate]'") or _lacking(_require_torch)
    if not lacking:
        from calibration.devices.provenance import found_by_torch

        found += found_by_torch()
    works = [(feature, reason or _WORKS) for feature, reason in _features(lacking)]
    output.show_list(("what", "here"), [*found, *works])


def _features(without_torch: str) -> Iterator[tuple[str, str]]:
    """Yield what can be asked of vdnnsim, and why it cannot be here; empty where it can."""
    yield "run, compare, whatif, sweep, claims", ""
    yield "capture, run --model", without_torch
    for name in ("torchvision", "timm", "transformers"):
        yield f"models by name of {name}", without_torch or _without(name, name)
    yield "calibrate and validate --device cpu", without_torch
    yield "calibrate and validate on a GPU", without_torch or _without_gpu()
    yield "calibrate every algorithm of cuDNN", without_torch or _without("cudnn", "'vdnnsim[cudnn]'")
    yield "pretend a GPU", _lacking(_require_pretended)
    yield "results as tables of pandas", _without("pandas", "'vdnnsim[notebook]'")
    yield "sweep --parquet", _without("pyarrow", "'vdnnsim[notebook]'")
    yield "sweep --cluster", _without("distributed", "'vdnnsim[cluster]'")


def _version(package: str) -> str:
    # Not at the top: with e-mail and archives it takes a third of the time in which `--help` answers.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _without(module: str, package: str) -> str:
    return "" if find_spec(module) else f"pip install {package}"


def _without_gpu() -> str:
    from calibration.devices.provenance import lacking_gpu

    return lacking_gpu()


def _require_torch() -> None:
    from calibration.availability import require_torch

    require_torch()


def _require_pretended() -> None:
    from calibration.pretend.build import find_compiler, find_torch

    find_torch()
    find_compiler()


def _lacking(requirement: Callable[[], None]) -> str:
    try:
        requirement()
    except DeviceError as refusal:
        return str(refusal)
    return ""
