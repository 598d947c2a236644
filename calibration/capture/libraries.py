"""Models of torchvision and timm by name, with random weights and without downloads."""

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from torch import nn

from vdnnsim.dnn.captured_step import ProgramText
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import not_one_of, one_line, quote

_NEAREST: Final = 12
"""Names that a message lists of hundreds."""


@dataclass(frozen=True)
class NamedModel:
    """A model of a library.

    Attributes:
        make: makes it, with parameters as its library initializes them.
        image: sizes of its images, channels first; None where it takes none, or the library does not say.
        tokens: of its longest sequence; None where it takes none.
        arguments: makes its keyword arguments from batch size, tokens and sizes of an image; None where it takes an
            image alone, or needs `--inputs`.
        text: how it is made, in Python.
    """

    make: Callable[[], nn.Module]
    image: tuple[int, ...] | None = None
    tokens: int | None = None
    arguments: Callable[[int, int, tuple[int, ...]], dict[str, Any]] | None = None
    note: str = ""
    text: ProgramText = field(default_factory=ProgramText)


def library(name: str) -> ModuleType:
    """Import a library of models, or raise CaptureError where it is not installed, or cannot be imported."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise CaptureError(
                f"{name} cannot be imported, {missing.name} is missing: pip install {missing.name}"
            ) from (missing)
        raise CaptureError(f"{name} is not installed: pip install {name}") from missing
    # RuntimeError: as of C++ built for another PyTorch.
    except (ImportError, OSError, RuntimeError) as failure:
        raise CaptureError(f"{name} is installed but cannot be imported: {one_line(str(failure))}") from failure


def library_version(name: str) -> str:
    """Return a library with its version, `timm 1.0.1`, without a local build's suffix."""
    return f"{name} {importlib.metadata.version(name).partition('+')[0]}"


def unknown_name(library_name: str, found: str, names: list[str]) -> CaptureError:
    """Return the error of an unknown name, with near names or those with its first letters."""
    near = get_close_matches(found, names, n=_NEAREST, cutoff=0.5)
    shown = near or [each for each in names if each.startswith(found[:3])][:_NEAREST]
    what = f"a model of {library_name}"
    return CaptureError(not_one_of(found, shown, what) if shown else f"{quote(found)} is not {what}")


def torchvision_names() -> list[str]:
    library("torchvision")
    names: list[str] = import_module("torchvision.models").list_models()
    return names


def timm_names() -> list[str]:
    names: list[str] = library("timm").list_models()
    return names


def torchvision_model(name: str) -> NamedModel:
    """Return a model of torchvision, or raise CaptureError where there is no such model."""
    names = torchvision_names()
    if name not in names:
        raise unknown_name("torchvision", name, names)
    models = import_module("torchvision.models")
    weights = list(models.get_model_weights(name))
    family = models.get_model_builder(name).__module__
    arguments = {"weights": None, **_without_weights(family)}
    make = partial(models.get_model, name, **arguments)
    words = "".join(f", {key}={value}" for key, value in arguments.items())
    text = ProgramText(("import torchvision",), f'torchvision.models.get_model("{name}"{words})')
    if ".detection" in family or ".optical_flow" in family:
        return NamedModel(make, text=text)  # takes lists of images and targets, or pairs of images
    # Some weights are for larger images than the model's own size.
    crops = [_side(each.transforms.keywords) for each in weights]
    side = min((crop for crop in crops if crop), default=224)
    frames = (16,) if ".video" in family else ()
    return NamedModel(
        make,
        image=(3, *frames, side, side),
        note=f"clips of {frames[0]} frames are assumed" if frames else "",
        text=text,
    )


def _side(transforms: dict[str, Any]) -> int:
    size = transforms.get("crop_size") or transforms.get("resize_size") or 0
    return int(size[0]) if isinstance(size, tuple | list) else int(size)


def _without_weights(family: str) -> dict[str, bool | None]:
    """Return arguments of a family's models: no weights of their backbone, no slow initialization."""
    if ".segmentation" in family or ".detection" in family:
        return {"weights_backbone": None}
    return {"init_weights": False} if family.endswith((".googlenet", ".inception")) else {}


def timm_model(name: str) -> NamedModel:
    """Return a model of timm, or raise CaptureError where there is no such model."""
    timm = library("timm")
    if not timm.is_model(name):
        raise unknown_name("timm", name, timm.list_models())
    # A deprecated name has no configuration.
    size = getattr(timm.get_pretrained_cfg(name), "input_size", None)
    return NamedModel(
        lambda: timm.create_model(name, pretrained=False),
        image=tuple(size) if size else None,
        text=ProgramText(("import timm",), f'timm.create_model("{name}")'),
    )
