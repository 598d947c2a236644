"""What `vdnnsim apply` does in the process of a script, once that has imported PyTorch."""

import atexit
import sys
from functools import partial
from typing import TYPE_CHECKING

from vdnnsim.api.live import plan

if TYPE_CHECKING:
    from calibration.apply.script import Script


def follow_script(*, hardware: str, memory: str | None, policy: str) -> None:
    """Find the model that the script trains, plan its step, and apply the plan from its second step on."""
    from calibration.apply.script import Script

    script = Script(partial(plan, hardware=hardware, memory=memory, policy=policy), _say)
    script.watch()
    atexit.register(_say_what_was_missed, script)


def _say_what_was_missed(script: "Script") -> None:
    if script.missed:
        _say(f"no plan was applied: {script.missed}")


def _say(lines: str) -> None:
    for line in lines.splitlines():
        sys.stderr.write(f"vdnnsim: {line}\n")
