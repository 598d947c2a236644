"""Captures of requests: the program that a request describes, its captured step, and a comparison of two steps."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from types import MappingProxyType
from typing import Final

import msgspec
import torch

from calibration.capture import lora
from calibration.capture.capture import capture, capture_batches
from calibration.capture.hub_models import hub_model
from calibration.capture.libraries import (
    NamedModel,
    library_version,
    timm_model,
    timm_names,
    torchvision_model,
    torchvision_names,
    unknown_name,
)
from calibration.capture.losses import AssumedLoss
from calibration.capture.program import CaptureDevice, Program
from calibration.capture.program_text import text_of_file, text_of_request
from calibration.capture.request import LIBRARIES, Request
from calibration.capture.request_inputs import RequestInputs, hint_of, refuse_unbatched
from calibration.capture.transformers_models import configured_model, transformers_model, transformers_names
from calibration.capture.user_code import model_maker, sample_of
from vdnnsim.dnn.captured_step import CapturedStep, ProgramText
from vdnnsim.dnn.training_loops import OPTIMIZERS
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import not_one_of, quote

NAMED: Final[Mapping[str, Callable[[str], NamedModel]]] = MappingProxyType(
    {"torchvision": torchvision_model, "timm": timm_model, "transformers": transformers_model}
)
"""By library what makes a model of a name."""


def captured_together(requests: Iterable[Request]) -> Generator[CapturedStep]:
    """Yield the captured steps of requests that differ in batch size, loss or optimizer alone.

    Each but the first is taken when its step is asked for.

    Raises:
        CaptureError: one of them cannot be captured.
    """
    others = iter(requests)
    request = next(others)
    asked: list[tuple[Request, Program, AssumedLoss]] = []
    losses: dict[tuple[int, int | None], AssumedLoss] = {}

    def programs() -> Iterator[Program]:
        for each in chain((request,), others):
            program, loss = program_of(each)
            key = each.batch_size, each.tokens
            has_labels = key in losses
            if losses and not has_labels and each.tokens == request.tokens:
                known = losses[request.batch_size, request.tokens]
                has_labels = loss.prepare(known, request.batch_size, each.batch_size)
            loss = losses.setdefault(key, loss)
            program = msgspec.structs.replace(program, loss=loss, labels=loss.labels, has_labels=has_labels)
            asked.append((each, program, loss))
            yield asked[-1][1]

    device = CaptureDevice(
        real=request.runs,
        compute_capability=request.compute_capability,
        compiled=request.compiled,
        device_type="cuda" if request.runs and torch.cuda.is_available() else "cpu",
    )
    with closing(capture_batches(programs(), device)) as captures:
        try:
            for step in captures:
                yield _completed(*asked[-1], step)
        except CaptureError as failure:
            hint = hint_of(failure, request, is_first=len(asked) == 1)
            if hint:
                raise CaptureError(f"{failure}; {hint}") from failure
            raise


def _completed(request: Request, program: Program, loss: AssumedLoss, step: CapturedStep) -> CapturedStep:
    refuse_unbatched(request, step)
    arguments = program.make_inputs()
    step = with_loss(step, loss, text_of_request(request, program.text, arguments, loss))
    if request.real:
        step = msgspec.structs.replace(step, notes=(*step.notes, _without_memory(request, step)))
    if request.inputs is None:
        return step
    sample, elements = sample_of(arguments)
    if request.tokens and sample != "sequence":
        # It stands behind another argument.
        sample, elements = "sequence", request.tokens
    return msgspec.structs.replace(step, sample=sample, sample_elements=elements)


def _without_memory(request: Request, real: CapturedStep) -> str:
    """Return a note that compares a capture with real tensors to one with fake tensors."""
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    try:
        program, _ = program_of(msgspec.structs.replace(request, real=False))
        return str(compare(capture(program, CaptureDevice(compute_capability=capability)), real))
    except CaptureError as failure:
        return f"without memory it cannot be captured: {failure}"


def with_loss(step: CapturedStep, loss: AssumedLoss, text: ProgramText) -> CapturedStep:
    """Return a step with the notes of its loss, and the program in Python."""
    return msgspec.structs.replace(step, notes=(*step.notes, *loss.notes), program=text)


def program_of(request: Request) -> tuple[Program, AssumedLoss]:
    """Return the program of a request, and its loss.

    Raises:
        CaptureError: there is no such model, or its inputs are missing.
    """
    request.check()
    if request.optimizer not in OPTIMIZERS:
        raise CaptureError(f"--optimizer: {not_one_of(request.optimizer, OPTIMIZERS, 'an optimizer')}")
    named, source = _named(request)
    versions = [library_version(each) for each in ("torch", source) if each]
    make_model = named.make if named else model_maker(request.model)
    given = RequestInputs(request, named)
    loss = AssumedLoss(request.model, request.accumulate)
    program = Program(
        **request.loop,
        name=request.name,
        make_model=make_model,
        make_inputs=given.make,
        loss=loss,
        batch_size=request.batch_size,
        labels=loss.labels,
        layout=request.layout,
        sample=given.sample,
        sample_elements=given.tokens if given.sample == "sequence" else 1,
        versions=", ".join(versions),
        notes=(*given.notes, *([lora.NOTE.format(request.lora)] if request.lora else ())),
        text=named.text if named else text_of_file(request.model),
    )
    return program, loss


def _named(request: Request) -> tuple[NamedModel | None, str]:
    """Return the model of a library or a `config.json`, None for one of a user's file, and the library."""
    if request.config is not None:
        return configured_model(request.config), "transformers"
    source, _, name = request.model.rpartition(":")
    if source.endswith(".py"):
        return None, ""
    if not source:
        source = _library_of(name)
    # The owner of models of timm on the hub.
    return NAMED[source](name.removeprefix("timm/")), source


def _library_of(name: str) -> str:
    """Return the library that has a model of a name, or raise CaptureError where several have, or none."""
    if hub_model(name) is not None:
        return "transformers"
    if name.startswith("timm/"):
        return "timm"
    has = {"torchvision": torchvision_names, "timm": timm_names, "transformers": transformers_names}
    names = {each: has[each]() for each in LIBRARIES if find_spec(each) is not None}
    found = [each for each, known in names.items() if name.lower() in known]
    if len(found) == 1:
        return found[0]
    if found:
        both = " and ".join(f"{each}:{name}" for each in found)
        raise CaptureError(f"{quote(name)}: {both} are models of this name, expected one of them")
    if "/" in name:
        raise CaptureError(
            f"{quote(name)}: is none of the models of huggingface.co that are known here, expected its config.json, as "
            f"https://huggingface.co/{name}/resolve/main/config.json, or a folder with it"
        )
    if not names:
        raise CaptureError(
            f"{quote(name)}: no library of models is installed: pip install torchvision timm transformers"
        )
    raise unknown_name(", ".join(names), name, list(dict.fromkeys(chain.from_iterable(names.values()))))


@dataclass(frozen=True)
class Comparison:
    """Differences of two captures, as pairs.

    Attributes:
        saved_bytes: by autograd, beside parameters and inputs.
        operators: numbers of calls by name, where they differ.
    """

    saved_bytes: tuple[int, int]
    peak_live_bytes: tuple[int, int]
    operators: dict[str, tuple[int, int]]

    @property
    def is_equal(self) -> bool:
        """Whether they agree to the byte."""
        sizes = self.saved_bytes, self.peak_live_bytes
        return not self.operators and all(first == second for first, second in sizes)

    def __str__(self) -> str:
        """Return a sentence about a capture with fake tensors and one with real ones."""
        if self.is_equal:
            return "captured without memory it saves and holds the same to the byte, by the same operators"
        counts = (f"{name} {first} times, not {second}" for name, (first, second) in self.operators.items())
        operators = f"; {', '.join(counts)}" if self.operators else ""
        return (
            f"captured without memory it saves {self.saved_bytes[0]} B, not {self.saved_bytes[1]}, and holds "
            f"{self.peak_live_bytes[0]} B, not {self.peak_live_bytes[1]}{operators}"
        )


def compare(first: CapturedStep, second: CapturedStep) -> Comparison:
    """Return how two captures of one program differ, without operations that move no bytes."""
    counts = [Counter(each.name for each in step.operations if each.bytes_moved) for step in (first, second)]
    names = sorted(counts[0] | counts[1])
    return Comparison(
        saved_bytes=(first.saved_bytes, second.saved_bytes),
        peak_live_bytes=(first.peak_live_bytes, second.peak_live_bytes),
        operators={name: (counts[0][name], counts[1][name]) for name in names if counts[0][name] != counts[1][name]},
    )
