"""vdnnsim: a discrete-event simulator of memory management for training deep networks on GPUs.

A model of yours begins with `capture`, which records its training step without a GPU, and `simulate`, which replays it:

    step = vdnnsim.capture(model, torch.zeros(16, 512, 1024))
    print(vdnnsim.simulate(step, hardware="rtx_4090", policy=["pytorch", "checkpoint"]))

`machines`, `max_batch`, `parallel` and `whatif` ask more of the step, or of a scenario that `load` reads, as
`vdnnsim.load("vgg416").run()`. `plan` makes a plan that a live loop follows. `help(vdnnsim.capture)` and the like have
arguments and errors; `vdnnsim --help` lists the commands.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vdnnsim.api import capture, load, machines, max_batch, parallel, plan, simulate, validate, whatif

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "capture",
    "load",
    "machines",
    "max_batch",
    "parallel",
    "plan",
    "simulate",
    "validate",
    "whatif",
]


def __dir__() -> list[str]:
    """Return what users call, for completion."""
    return [*__all__, "errors"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # whatever a name stands for
    """Import what a notebook calls when it asks for it: the command line does not."""
    if name == "errors":
        return import_module("vdnnsim.errors")
    if name in __all__:
        from vdnnsim import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
