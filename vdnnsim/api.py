"""What a notebook calls: the words of the command line as functions. PyTorch is imported when one is called."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vdnnsim.dnn.captured_file import write_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.workload import Mode
from vdnnsim.element_type import Precision
from vdnnsim.errors import CaptureError, InputError
from vdnnsim.messages import not_one_of

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import RenderableType

    from vdnnsim.analysis.results import PolicyResult, ScenarioResult
    from vdnnsim.memory.choices import MemoryChoice

_WIDTH = 100
"""Characters of a table in a notebook."""


class Captured(CapturedStep, frozen=True):
    """A captured step that prints as a table."""

    def __str__(self) -> str:
        from vdnnsim.report.tables.captured import captured_table

        return _printed(captured_table(self, "`storages` has all"))

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:  # noqa: ANN401, FBT001  # as IPython calls it
        """Print the table where a cell of a notebook ends with the step."""
        printer.text(str(self))

    def write(self, path: str | Path) -> None:
        """Write the step to a file, NAME.step.json, which a scenario names as `workload: {step: NAME.step.json}`.

        Raises:
            OutputError: the file cannot be written.
        """
        write_captured_step(self, Path(path))


def capture(  # noqa: PLR0913  # the words of the command
    model: Any,  # noqa: ANN401  # PyTorch is not imported here
    inputs: Any = None,  # noqa: ANN401
    *,
    loss: Callable[[Any], Any] | None = None,
    batch: int | None = None,
    image: tuple[int, ...] | None = None,
    tokens: int | None = None,
    mode: str = "training",
    precision: str = "float32",
    optimizer: str = "adamw",
    accumulate: int = 1,
    channels_last: bool = False,
    real: bool = False,
) -> Captured:
    """Record one iteration of a PyTorch model without a GPU and without its memory; the model stays as it is.

    A model in words is captured in a process of its own, as the command does it; any other in this one.

    Args:
        model: a `torch.nn.Module`, a function without arguments that makes one (nothing is allocated then), or words
            as `vdnnsim capture` takes them: `timm:convnext_base`, `my_model.py:make`.
        inputs: a tensor, a tuple of arguments, a dictionary of arguments by name, or a pair of both; of a model in
            words `FILE.py:NAME`.
        loss: a scalar from what the model returns; by default its own, or one that fits its output, and that is noted.
        batch: samples; by default the first size of the first tensor of the inputs.
        image: sizes, channels first, of what a model in words is given.
        tokens: of a sequence that a model in words is given.
        mode: `training` or `inference`.
        precision: `float32`, `tf32`, `bfloat16`, `float16`, `amp_bfloat16` or `amp_float16`.
        optimizer: a name as of `torch.optim`, with PyTorch's defaults; `adamw_fused`; or `none`.
        accumulate: micro-batches before a step of the optimizer.
        channels_last: whether images and weights of convolutions lie in memory with their channels last.
        real: whether to run the model with real tensors: one in words on the GPU where there is one, any other on the
            CPU.

    Raises:
        CaptureError: the model cannot be captured; the message says why and what would be right.
    """
    chosen = {
        "mode": _member(Mode, "mode", mode),
        "precision": _member(Precision, "precision", precision),
        "optimizer": optimizer,
        "accumulate": accumulate,
        "channels_last": channels_last,
    }
    if isinstance(model, str):
        from calibration.capture.isolation import captured
        from calibration.capture.request import Request

        if loss is not None:
            raise CaptureError(f"loss: {model} is captured in a process of its own, expected a model that has its loss")
        if batch is None:
            raise CaptureError(f"batch: {model} has none by default, expected an integer from 1 on")
        step, _ = captured(
            Request(model=model, batch_size=batch, image=image, tokens=tokens, inputs=inputs, real=real, **chosen)
        )
    else:
        from calibration.availability import require_torch

        require_torch()
        from calibration.capture.capture import CaptureDevice
        from calibration.capture.objects import captured_object

        if image is not None or tokens is not None:
            raise CaptureError("image and tokens are of models in words, expected inputs")
        device = CaptureDevice(real=real)
        step, _ = captured_object(model, inputs, loss=loss, batch_size=batch, device=device, **chosen)
    return Captured(**msgspec.structs.asdict(step))


@dataclass(frozen=True, slots=True)
class Simulation:
    """What policies do with a captured model on a machine; it prints as the table of `vdnnsim run`.

    Attributes:
        result: all of it, with the trace of each policy.
    """

    result: "ScenarioResult"

    @property
    def rows(self) -> "tuple[PolicyResult, ...]":
        """What came of each policy, with its metrics, in the order in which they were named."""
        return self.result.results

    def to_pandas(self) -> "DataFrame":
        """Return the table as numbers, the columns of results.csv, in SI units.

        Raises:
            ImportError: pandas is not installed.
        """
        from pandas import DataFrame

        from vdnnsim.analysis.columns import RUN, result_rows

        return DataFrame(result_rows(self.result), columns=list(RUN))

    def __str__(self) -> str:
        from vdnnsim.report.tables.terminal import result_table

        return _printed(result_table(self.result))

    def _repr_pretty_(self, printer: Any, _is_cycle: bool) -> None:  # noqa: ANN401, FBT001  # as IPython calls it
        """Print the table where a cell of a notebook ends with it."""
        printer.text(str(self))


def simulate(
    step: CapturedStep | str | Path,
    hardware: str,
    policy: str | Sequence[str] = "pytorch",
    *,
    memory_model: str = "pytorch",
    execution: str = "eager",
) -> Simulation:
    """Replay a captured model on a machine.

    Args:
        step: what `capture` returned, or the file that it was written to.
        hardware: the name of a profile, `rtx_4090`, or a path to one that ends in .yaml.
        policy: one as a scenario names it, `vdnn_all(m)`, or several.
        memory_model: how memory is given out, as in a scenario; `pytorch` as PyTorch's caching allocator does,
            `pytorch(expandable_segments:True)` as it does where PYTORCH_ALLOC_CONF says this.
        execution: how the model is run: `eager`, `cuda_graphs`, or `compiled`, which fuses pointwise operators.

    Raises:
        ScenarioError: the file is not a captured step, or the memory model is unknown.
        ProfileError: there is no such profile, or it does not cover what the model computes in.
        PolicyError: there is no such policy, or it has no meaning for captured models.
    """
    from vdnnsim.dnn.captured_file import read_captured_step
    from vdnnsim.dnn.captured_workload import CapturedWorkload
    from vdnnsim.engine.host import Execution
    from vdnnsim.experiment import run_scenario
    from vdnnsim.hardware.profile import find_profile, load_profile
    from vdnnsim.memory.choices import PinnedMemory
    from vdnnsim.policies.registry import known_policies, resolve_policy
    from vdnnsim.scenario.captured import as_executed
    from vdnnsim.scenario.scenario import Scenario

    way = _member(Execution, "execution", execution)
    captured = as_executed(step if isinstance(step, CapturedStep) else read_captured_step(Path(step))[0], way)
    profile = load_profile(find_profile(hardware, Path()))
    known = known_policies()
    scenario = Scenario(
        name=captured.model,
        workload=CapturedWorkload.of(captured),
        server=profile.server,
        policies=tuple(resolve_policy(each, known) for each in ([policy] if isinstance(policy, str) else policy)),
        memory_model=_memory_model(memory_model),
        pinned_memory=PinnedMemory.ARENA,
        sources=profile.sources,
        execution=way,
    )
    return Simulation(run_scenario(scenario))


def _printed(table: "RenderableType") -> str:
    from rich.console import Console

    text = StringIO()
    Console(file=text, width=_WIDTH, highlight=False).print(table)
    return text.getvalue().rstrip()


def _memory_model(text: str) -> "MemoryChoice":
    from vdnnsim.memory.choices import memory_choice

    try:
        return memory_choice(text)
    except InputError as failure:
        raise CaptureError(f"memory_model: {failure}") from None


def _member(choices: type[Any], name: str, text: str) -> Any:  # noqa: ANN401  # a member of the enum
    names = [str(each.value) for each in choices]
    if text not in names:
        raise CaptureError(f"{name}: {not_one_of(text, names, f'a {name}')}")
    return choices(text)
