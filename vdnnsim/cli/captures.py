"""Captures of a command: the request that its options make, and captured steps with notices of those not cached."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from vdnnsim.errors import InputError

if TYPE_CHECKING:
    from calibration.capture.isolation import Capturing
    from calibration.capture.request import Request
    from vdnnsim.dnn.captured_step import CapturedStep
    from vdnnsim.hardware.server import Server

KEPT: Final = "vdnnsim.kept"
"""Key of what a command has kept for the next one, in the meta of its context."""
_UNKNOWN: Final = "vdnnsim.unknown_capability"
"""Key of the machines whose unknown compute capability was noticed."""
_DEFAULTS: Final = {"precision": "float32", "optimizer": "adamw", "mode": "training"}


def request_of(model: str, batch_size: int, words: Mapping[str, Any]) -> "Request":
    """Return the unchecked capture request of options, or raise InputError for an unknown value."""
    from calibration.capture.request import Request, parse_image
    from vdnnsim.dnn.workload import Mode
    from vdnnsim.files.value import Entry
    from vdnnsim.units import Precision

    said = {name: words[name] or default for name, default in _DEFAULTS.items()}
    return Request(
        model=model,
        batch_size=batch_size,
        image=None if words["image"] is None else parse_image(words["image"]),
        tokens=words["tokens"],
        inputs=words["inputs"],
        mode=Entry("", "--mode", said["mode"], InputError).choice(Mode, "a mode"),
        precision=Entry("", "--precision", said["precision"], InputError).choice(Precision, "a precision"),
        optimizer=said["optimizer"],
        in_backward=bool(words["in_backward"]),
        param_groups=words["param_groups"] or 1,
        loss_chunks=words["loss_chunks"] or 1,
        lora=words["lora"],
        channels_last=bool(words["channels_last"]),
        real=bool(words["real"]),
        parallel=words["parallel"] or "",
        checkpointing=words["checkpointing"] or "",
    )


def for_card(request: "Request", server: "Server") -> "Request":
    """Return a request for the card of a machine, unchanged, with a notice, where its compute capability is unknown."""
    import msgspec

    from calibration.pretend.card import compute_capability

    if capability := compute_capability(server):
        return msgspec.structs.replace(request, compute_capability=capability)
    context = click.get_current_context(silent=True)
    if context is not None and server.name not in context.meta.setdefault(_UNKNOWN, []):
        context.meta[_UNKNOWN].append(server.name)
        taken = "{}.{}".format(*request.compute_capability)
        click.echo(
            f"{server.name}: its compute capability is unknown, so the model is captured for {taken}; state "
            "`compute_capability` of its `gpu`",
            err=True,
        )
    return request


def captured_with_notice(requests: "Sequence[Request]", *, process: "Capturing | None" = None) -> "list[CapturedStep]":
    """Return captured steps, as `captured_together`, with a notice on standard error of those that were not cached."""
    from calibration.capture.isolation import captured_together

    steps = []
    context = click.get_current_context(silent=True)
    found = captured_together(requests, process=process)
    for request, (step, kept) in zip(requests, found, strict=False):
        if kept is None:
            if context is not None:
                context.meta[KEPT] = ("what was captured",)
            length = "" if request.tokens is None else f" of {request.tokens} tokens"
            size = f"at a batch of {request.batch_size}{length} in {request.precision.value}"
            slices = f", its loss in {request.loss_chunks} slices" if request.loss_chunks > 1 else ""
            update = f" with {step.update}" if step.update else ""
            place = f"rank {request.position}" if request.has_pipeline else "a rank"
            rank = f", {place} of {request.parallel}" if request.parallel else ""
            blocks = f", checkpointing {request.checkpointing}" if request.checkpointing else ""
            how = ", by torch.compile" if request.compiled else ""
            click.echo(f"captured {request.model} {size}{update}{slices}{rank}{blocks}{how}", err=True)
        steps.append(step)
    return steps


def captured_ranks(request: "Request", process: "Capturing") -> "list[CapturedStep]":
    """Return the steps of the ranks that differ, one or those of a pipeline, with notices."""
    import msgspec

    pipeline = request.layout.pipeline if request.layout else 1
    each = (msgspec.structs.replace(request, position=position) for position in range(pipeline))
    return [step for rank in each for step in captured_with_notice((rank,), process=process)]
