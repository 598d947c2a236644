"""What `vdnnsim apply` does in the process of a script, once that has imported PyTorch."""

import atexit
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from vdnnsim.api.live import Planned, asked_for
from vdnnsim.errors import PolicyError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from calibration.apply.script import Script


class Refitted:
    """A plan for a script, in which nobody asks for another: it is made again once, after a step that was off it.

    Attributes:
        planned: what is applied.
    """

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self._is_first = True

    def apply(self, model: Any) -> "AbstractContextManager[Any]":  # noqa: ANN401  # of torch
        """Apply the plan to the next step of the model."""
        if self._is_first and (self.planned.has_drifted or self.planned.is_full_of_gaps):
            self._is_first = False
            try:
                self.planned = self.planned.refit()
                _say(f"planned again, by what these steps took:\n{self}")
            except PolicyError as failure:
                _say(f"the plan stays, for none can be made by what these steps took: {failure}")
        return self.planned.apply(model)

    def __str__(self) -> str:
        return str(self.planned)


def follow_script(*, hardware: str, memory: str | None, policy: str) -> None:
    """Find the model that the script trains, plan its step, and apply the plan from its second step on."""
    from calibration.apply.script import Script

    script = Script(partial(planned_beside, hardware=hardware, memory=memory, policy=policy), _say)
    script.watch()
    atexit.register(_say_what_was_missed, script)


def planned_beside(model: Any, inputs: Any, *, beside_bytes: int, **asked: Any) -> Refitted:  # noqa: ANN401  # of torch
    """Plan as `vdnnsim.plan` does, within what other bytes that a script holds leave of a memory."""
    return Refitted(replace(asked_for(model, inputs, **asked), offer="").beside(beside_bytes).planned())


def _say_what_was_missed(script: "Script") -> None:
    if script.missed:
        _say(f"no plan was applied: {script.missed}")


def _say(lines: str) -> None:
    for line in lines.splitlines():
        sys.stderr.write(f"vdnnsim: {line}\n")
