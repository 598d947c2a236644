"""Notes beside an answer: what occupies the memory at the peak, what cannot help, and what was not tried."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from vdnnsim.analysis.captured_peak import binding
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.training_loops import LARGE, Loop
from vdnnsim.files.messages import listed, options_text
from vdnnsim.hardware.profile import shipped_profiles
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.units import format_bytes

_GPUS: Final = 8
_OTHERWISE: Final = "h100_x8"


def notes(replays: AnswerReplays, plain: str, lacking: Sequence[Loop], *, has_loops: bool) -> Iterator[str]:
    """Yield which bytes bind, and what cannot help.

    Args:
        replays: of the loop as it is.
        plain: the policy that recomputes and offloads nothing.
        lacking: loops that could not be captured.
        has_loops: whether others were.
    """
    step, held = replays.workload.captured, replays.held_bytes
    label = replays.named(plain).label
    known = (each for each in replays.result.slowest if each.policy == label)
    row = next(known, None) or replays.row(plain, replays.scenario)
    if isinstance(row, PolicyResult):
        where, live = binding(row.trace)
        total = row.metrics.allocated_bytes
        most = [f"{format_bytes(nbytes)} of {what}" for what, nbytes in live if nbytes > LARGE * total]
        yield f"At the peak of the plain loop, in {where}, {format_bytes(total)} are live: {listed(most)}."
    if replays.floor_bytes > replays.room_bytes:
        states = states_bytes(step)
        kinds = (
            "of parameters",
            "of their gradients",
            f"of states of {step.optimizer}",
            "of temporaries of the update",
        )
        gradients, temporary = held - states - step.parameter_bytes, replays.floor_bytes - held
        parts = zip(kinds, (step.parameter_bytes, gradients, states, temporary), strict=True)
        sizes = listed([f"{format_bytes(nbytes)} {what}" for what, nbytes in parts if nbytes > 0])
        yield f"No smaller batch helps in the loop as it is: {sizes} are live at once."
        if replays.room_bytes >= held - states:
            without = format_bytes(held - states)
            yield f"Not tried: an optimizer without states, `--optimizer sgd`: {without} are live at once."
    if has_loops:
        yield f"Not tried: {'other layouts' if step.ranks > 1 else 'several GPUs'}, {_parallel(replays)}"
    if lacking:
        yield f"Not tried, for it could not be captured so: {listed([f'`{each.options}`' for each in lacking])}"


def _parallel(replays: AnswerReplays) -> str:
    """Return the command that spreads the batch over eight GPUs, of the same card where such a machine is known.

    Of a rank it spreads the same over as many. No command finds a model that is an object in Python.
    """
    step, own = replays.workload.captured, f"{replays.scenario.server.name}_x{_GPUS}"
    is_known = any(each.server.name == own for each in shipped_profiles())
    server, batch_size, gpus = own if is_known else _OTHERWISE, max(1, step.batch_size // _GPUS), None
    if step.ranks > 1:
        server, gpus = replays.scenario.server.name, step.ranks
        batch_size = max(1, step.part_size // (parse_layout(step.parallel).tensor * step.pipeline))
    if not step.program.model:
        return f"`vdnnsim.parallel(step, '{server}')` of a step at a batch of {batch_size}"
    rounds = replays.workload.rounds
    sizes = options_text({"batch": batch_size, "accumulate": rounds if rounds > 1 else None, "gpus": gpus})
    options = f"{sizes} {step.program.options} {options_text({'hardware': server})}"
    return f"`vdnnsim parallel {shlex.quote(step.model)} {options}`"


def states_bytes(step: CapturedStep) -> int:
    """Return the bytes of optimizer states."""
    return sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.OPTIMIZER_STATE)
