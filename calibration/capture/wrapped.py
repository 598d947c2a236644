"""Models that are wrapped for several GPUs or by torch.compile: recognized, and unwrapped or refused."""

import sys
import warnings
from collections.abc import Container, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import torch
from torch import distributed, nn

from calibration.capture.failures import RANKS
from vdnnsim.errors import CaptureError

EAGER: Final = (
    "Modules of torch.compile were run eagerly: compiled, they may need less memory; `--execution compiled`, in Python "
    '`execution="compiled"`, replays them fused.'
)
_REPLICATED: Final = (nn.parallel.DistributedDataParallel, nn.DataParallel)

_WRAPPER: Final = "compile_wrapper"
"""The function that PyTorch puts around what torch.compile made."""


class Scheduled(nn.Module):
    """The stages of a rank of a pipeline, which a user's code has made, with their schedule."""

    def __init__(self, schedule: Any) -> None:  # noqa: ANN401 - PyTorch has no public class of all of them
        super().__init__()
        self.schedule = schedule
        self.stages: list[Any] = getattr(schedule, "_stages", None) or [schedule._stage]  # noqa: SLF001
        self.parts = nn.ModuleList(each.submod for each in self.stages)


def as_module(made: object) -> object:
    """Return a schedule of torch.distributed.pipelining as a module; anything else as it is."""
    if isinstance(made, nn.Module) or not (distributed.is_available() and distributed.is_initialized()):
        return made
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

    return Scheduled(made) if isinstance(made, PipelineScheduleMulti | PipelineScheduleSingle) else made


def within_ddp(model: nn.Module) -> nn.Module:
    """Return the model within DistributedDataParallel, or else the model itself."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def is_sharded(model: nn.Module) -> bool:
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    return any(isinstance(each, FSDPModule | FullyShardedDataParallel) for each in model.modules())


def is_compiled(module: nn.Module) -> bool:
    """Return whether a module, without those within, is compiled by torch.compile."""
    return was_made_by_compile(module) or module._compiled_call_impl is not None  # noqa: SLF001


def was_made_by_compile(module: nn.Module) -> bool:
    """Return whether torch.compile made a module around another, which it did not compile in place."""
    return type(module).__name__ == "OptimizedModule"


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module within DistributedDataParallel, and within what torch.compile made if that runs eagerly."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif was_made_by_compile(model) and compiles_nothing():
            model = model._orig_mod  # type: ignore[assignment]  # noqa: SLF001 - PyTorch's own name for it in states
        else:
            return model


def compiles_nothing() -> bool:
    """Return whether all that torch.compile made runs eagerly, by `torch.compiler.set_stance`."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and dynamo._stance.stance == "force_eager"  # noqa: SLF001 - there is no public one


def is_in_compiled_call() -> bool:
    """Return whether a function runs that torch.compile made, unless all of them run eagerly."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None or compiles_nothing():
        return False
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as `inspect.currentframe`
    # What is kept from being compiled, as a checkpoint, is called from that file, too.
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != (dynamo.__file__, _WRAPPER):
        frame = frame.f_back
    return frame is not None


def refuse_spread(model: nn.Module) -> None:
    """Refuse a model that is wrapped for several GPUs.

    Raises:
        CaptureError: it is in DDP or DataParallel, sharded by FSDP, or in stages.
    """
    if isinstance(model, Scheduled):
        raise CaptureError("found a schedule of pipeline stages, expected --parallel ranks=N,pp=M of M stages")
    if is_sharded(model):
        raise CaptureError(
            f"{type(model).__name__}: was sharded by FSDP, so each rank holds a part of it; expected the model before "
            f"`fully_shard` or FullyShardedDataParallel, or {RANKS}"
        )
    for name, each in model.named_modules():
        if isinstance(each, _REPLICATED):
            within = ".".join(filter(None, (name, "module")))
            raise CaptureError(
                f"{type(each).__name__}: wraps {type(each.module).__name__} for several GPUs, expected the model "
                f"within, `model.{within}`: a plan for it is applied to the wrapped one; `gpus` and `gradients: ddp` "
                "of a scenario replay several GPUs"
            )


def refuse_compiled(model: nn.Module, known: Container[int] = ()) -> None:
    """Refuse a model of which a part is compiled, unless all of them run eagerly.

    Calls of known models, by identity, are intercepted, which looks like a compiled one.

    Raises:
        CaptureError: a module is compiled.
    """
    for each in () if compiles_nothing() else model.modules():
        if is_compiled(each) and id(each) not in known:
            raise CaptureError(
                f"{type(each).__name__}: was compiled by torch.compile, and does not run the operations that a plan is "
                'made of; expected the model before that, or torch.compiler.set_stance("force_eager")'
            )


@contextmanager
def run_eagerly(model: nn.Module) -> Iterator[tuple[str, ...]]:
    """Run what `torch.compile` made eagerly, functions that no module tells of too; yields a note about modules."""
    notes = (EAGER,) if any(map(is_compiled, model.modules())) else ()
    if "torch._dynamo" not in sys.modules:
        # The import, which takes seconds, precedes whatever is compiled.
        yield notes
        return
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        # A compiled module and the one within it have different paths.
        warnings.filterwarnings("ignore", "Using `torch.compile.module.` when there are global hooks")
        yield notes
