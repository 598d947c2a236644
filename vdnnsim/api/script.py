"""`vdnnsim apply` within the process of a script: plans its models once it has imported PyTorch."""

import atexit
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vdnnsim.api.planning import Planned, request_plan
from vdnnsim.errors import PlanWarning, PolicyError
from vdnnsim.units import format_bytes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from calibration.apply.script import Script


class ScriptPlan:
    """A plan for one of several models of a script, without reports; made again once where fragmentation is too large.

    Attributes:
        planned: the current plan.
        own_bytes: peak of a step beside its given storages.
    """

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        given = sum(each.nbytes for each in planned.loop.schedule.captured.storages if each.given)
        self.own_bytes = max(0, planned.predicted.metrics.allocated_bytes - given)
        self._is_first = True
        self._before = 0

    def apply(self, model: Any) -> "AbstractContextManager[Any]":  # noqa: ANN401  # of torch
        """Apply the plan to the next step of the model."""
        if self._is_first and self._is_off:
            self._is_first = False
            self._before = self.end()
            try:
                self.planned = self.planned.refit()
                _say(f"planned again with what these steps took:\n{self}")
            except PolicyError as failure:
                _say(f"the plan is kept, since none fits what these steps took: {failure}")
        return self._applied(model)

    def end(self) -> int:
        """Return the largest excess over the memory limit so far, in bytes."""
        return max(self._before, self.planned.loop.reservation.end())

    def __str__(self) -> str:
        return str(self.planned)

    @property
    def _is_off(self) -> bool:
        return self.planned.is_full_of_gaps

    def _applied(self, model: Any) -> "AbstractContextManager[Any]":  # noqa: ANN401
        return self.planned.loop.apply(model)


class SingleModelPlan(ScriptPlan):
    """A plan for the only model of a script, with reports; made again also if a step drifted."""

    @property
    def _is_off(self) -> bool:
        return self.planned.has_drifted or self.planned.is_full_of_gaps

    def _applied(self, model: Any) -> "AbstractContextManager[Any]":  # noqa: ANN401
        return self.planned.apply(model)


def follow_script(
    *, hardware: str, memory: str | None, policy: str, real: bool = False, notes_folder: str | None = None
) -> None:
    """Find the models of the script, and apply plans from their second steps on.

    Arguments are of `vdnnsim.plan`; `notes_folder` gets a file `seen.PID` once a model is planned or missed, and
    `beyond.PID` at the end if the memory limit was exceeded.
    """
    from calibration.apply.model_discovery import finds_gpu
    from calibration.apply.script import Script

    if hardware == "auto" and not finds_gpu():
        _say("no GPU was found to plan for; name one by --hardware, as rtx_4090 (`vdnnsim list hardware` has all)")
        sys.exit(1)
    note = partial(_note, notes_folder)

    def plan(*given: Any, **asked: Any) -> ScriptPlan:  # noqa: ANN401  # as of `planned_beside`
        note("seen")
        return planned_beside(*given, **asked, hardware=hardware, memory=memory, policy=policy, real=real)

    script = Script(plan, _say)
    script.watch()
    warnings.showwarning = partial(_shown, warnings.showwarning)
    atexit.register(_say_at_end, script, memory, note)


def _shown(
    show: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    *where: Any,  # noqa: ANN401  # as of warnings.showwarning
    **more: Any,  # noqa: ANN401
) -> None:
    """Show a warning of a plan in one line, and others by `show`."""
    if issubclass(category, PlanWarning):
        _say(str(message))
    else:
        show(message, category, *where, **more)


def planned_beside(
    model: Any,  # noqa: ANN401  # of torch
    inputs: Any,  # noqa: ANN401
    *,
    loss: Any,  # noqa: ANN401
    beside_bytes: int,
    others: float | None = None,
    holds_inputs: bool = True,
    real: bool = False,
    **asked: Any,  # noqa: ANN401
) -> ScriptPlan:
    """Plan as `vdnnsim.plan`, with `beside_bytes` on the GPU beside the model.

    `others` is the share of other models of the script in the memory left by these, weights, states and batch; less if
    no plan fits; None without others. A script that `holds_inputs` has them in backward. Other arguments are those of
    `request_plan`.
    """
    own = loss.apart() if real else loss
    found = replace(request_plan(model, inputs, loss=own, real=real, **asked), offer="").beside(beside_bytes)
    if not holds_inputs:
        found = found.without_inputs_in_backward()
    if others is None:
        return SingleModelPlan(found.planned())
    for part in (others, others / 2, others / 4):
        try:
            return ScriptPlan(found.beside(round(found.free_bytes * part)).planned())
        except PolicyError:
            continue
    return ScriptPlan(found.planned())


def _say_at_end(script: "Script", memory: str | None, note: Callable[[str], None]) -> None:
    if script.missed:
        note("seen")
        _say(f"no plan was applied: {script.missed}")
    beyond_bytes = script.end()
    if beyond_bytes:
        _say(f"PyTorch has reserved up to {format_bytes(beyond_bytes)} more than the {memory} that it may")
        note("beyond")


def _note(folder: str | None, what: str) -> None:
    """Leave a note for the command that started the script."""
    if folder is not None:
        (Path(folder) / f"{what}.{os.getpid()}").touch()


def _say(lines: str) -> None:
    for line in lines.splitlines():
        sys.stderr.write(f"vdnnsim: {line}\n")
