"""The child process that captures: it reads requests, one a line, and writes an answer to each."""

import gc
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from calibration.availability import require_torch
from calibration.capture.isolation import Answer, file_sha256
from calibration.capture.request import Request
from vdnnsim.errors import VdnnsimError

_OURS = Path(__file__).parents[2]
_OF_ITERATION: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "batch_size": 1,
        "tokens": None,
        "optimizer": "",
        "in_backward": False,
        "param_groups": 1,
        "loss_chunks": 1,
        "checkpointing": "",
    }
)
"""What may differ in a request for the same model."""


def main() -> None:
    """Answer requests; the last arguments are the descriptors of requests and of answers."""
    # Imports of PyTorch took a quarter longer with the collector as it is by default.
    gc.set_threshold(200_000)
    asking, telling = map(int, sys.argv[-2:])
    sys.argv[1:] = []
    with os.fdopen(asking, "rb") as asked, os.fdopen(telling, "wb") as told:
        try:
            for answer in answers(msgspec.json.decode(line, type=Request) for line in asked):
                for each in (sys.stdout, sys.stderr):
                    each.flush()
                told.write(msgspec.json.encode(answer) + b"\n")
                told.flush()
        except KeyboardInterrupt:
            sys.exit(130)
    # Without exit handlers of libraries, some of which fail.
    os._exit(0)


def answers(requests: Iterable[Request]) -> Iterator[Answer]:
    """Yield an answer to each request; those in a row that differ in their iterations alone share a model."""
    for _, alike in groupby(requests, key=_model_of):
        # One that fails ends the captures of a model, and the next makes it anew.
        while (first := next(alike, None)) is not None:
            yield from _of_one_model(chain((first,), alike))  # noqa: B031 - what is left of it


def _model_of(request: Request) -> Request:
    """Return a request without what leaves the model as it is.

    Stages of a pipeline have buffers of a batch; checkpoints are taken off a plain model of fake tensors alone.
    """
    kept = ["batch_size", "accumulate"] if request.has_pipeline else []
    if request.parallel or request.compiled or request.runs:
        kept.append("checkpointing")
    return msgspec.structs.replace(request, **{**_OF_ITERATION, **{each: getattr(request, each) for each in kept}})


def _of_one_model(requests: Iterable[Request]) -> Iterator[Answer]:
    asked: list[Request] = []

    def noted() -> Iterator[Request]:
        for each in requests:
            asked.append(each)
            yield each

    try:
        require_torch("capture")
        # Fake tensors import it. What was imported stays, and each capture begins with a collection of garbage.
        import_module("torch._dynamo.config")
        from calibration.capture.request_capture import captured_together

        if not gc.get_freeze_count():
            gc.freeze()
        for step in captured_together(noted()):
            config = asked[-1].config
            described = {} if config is None else {str(config.resolve()): file_sha256(str(config))}
            yield Answer(step, files=_imported_files() | described)
    except VdnnsimError as error:
        yield Answer(error=str(error))
    except SystemExit as end:
        yield Answer(error=f"{asked[-1].model}: its code ends Python (exit status {end.code})")


def _imported_files() -> dict[str, str]:
    """Return digests of the files of modules that are neither installed nor ours."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {file: file_sha256(file) for file in sorted(filter(_is_of_user, filter(None, files)))}


def _is_of_user(file: str) -> bool:
    return not file.startswith(_not_of_user())


@cache
def _not_of_user() -> tuple[str, ...]:
    """Return the folders of installed modules and of ours, as thousands of files begin."""
    places = sysconfig.get_paths()
    installed = [Path(places[each]) for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(f"{each}{os.sep}" for each in (*installed, _OURS / "calibration", _OURS / "vdnnsim"))
