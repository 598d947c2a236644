"""What `vdnnsim apply` does in the process of a script, once that has imported PyTorch."""

import atexit
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from vdnnsim.api.live import Planned, asked_for

if TYPE_CHECKING:
    from calibration.apply.script import Script


def follow_script(*, hardware: str, memory: str | None, policy: str) -> None:
    """Find the model that the script trains, plan its step, and apply the plan from its second step on."""
    from calibration.apply.script import Script

    script = Script(partial(planned_beside, hardware=hardware, memory=memory, policy=policy), _say)
    script.watch()
    atexit.register(_say_what_was_missed, script)


def planned_beside(model: Any, inputs: Any, *, beside_bytes: int, **asked: Any) -> Planned:  # noqa: ANN401  # of torch
    """Plan as `vdnnsim.plan` does, within what other bytes that a script holds leave of a memory."""
    return asked_for(model, inputs, **asked).beside(beside_bytes).planned()


def _say_what_was_missed(script: "Script") -> None:
    if script.missed:
        _say(f"no plan was applied: {script.missed}")


def _say(lines: str) -> None:
    for line in lines.splitlines():
        sys.stderr.write(f"vdnnsim: {line}\n")
