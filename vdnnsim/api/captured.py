"""`vdnnsim.capture`, and the captured step that it returns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from vdnnsim.api.named import precision_named, profile_named
from vdnnsim.api.recapture import Again, of_name, of_object
from vdnnsim.dnn.captured_file import write_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.training_loops import optimizer_named
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import describe
from vdnnsim.files.value import Entry
from vdnnsim.report.result_table import ResultTable, Shown
from vdnnsim.units import Precision

if TYPE_CHECKING:
    from vdnnsim.dnn.captured_model import CapturedModel
    from vdnnsim.dnn.training_loops import Loop
    from vdnnsim.engine.host import Execution
    from vdnnsim.hardware.server import Server

_AGAIN: Final = "_again"


class Captured(Shown, CapturedStep, frozen=True, dict=True):
    """A captured step that is shown as a table; one captured here can be captured at other batch sizes."""

    @property
    def at_batch(self) -> "Callable[..., Captured] | None":
        """Captures the same at another batch size, and with other words of `capture`, as `parallel`.

        None of a step from a file, with real tensors, or whose `batch` was stated beside a model in Python.
        """
        again = self.__dict__.get(_AGAIN)
        if again is None or not again.any_batch:
            return None
        return lambda batch_size, **words: _recapturable(*again.at(batch_size, **words))

    def __eq__(self, other: object) -> bool:
        """Return whether another step has the same fields, whichever of the two can be captured again."""
        if not isinstance(other, CapturedStep):
            return NotImplemented
        return all(getattr(self, each) == getattr(other, each) for each in CapturedStep.__struct_fields__)

    __hash__ = CapturedStep.__hash__

    def __copy__(self) -> "Captured":
        """Return a step that can be captured again as this one."""
        return _recapturable(self, self.__dict__.get(_AGAIN))

    def __deepcopy__(self, _: dict[int, Any]) -> "Captured":
        # Nothing in it changes, and a model that it may be captured of again is not to be copied.
        return self.__copy__()

    @property
    def table(self) -> ResultTable:
        """The table of `vdnnsim capture`."""
        from vdnnsim.report.tables.captured import COLUMNS, captured_rows, captured_table

        return ResultTable(COLUMNS, captured_rows(self), captured_table(self, "`storages` has all"))

    def __str__(self) -> str:
        return str(self.table)

    def write(self, path: str | Path) -> None:
        """Write the step to a file, for a scenario with `workload: {step: NAME.step.json}`.

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
    optimizer: str | type = "adamw",
    lora: int | None = None,
    accumulate: int = 1,
    in_backward: bool = False,
    param_groups: int = 1,
    loss_chunks: int = 1,
    channels_last: bool = False,
    real: bool = False,
    compile: bool = False,  # noqa: A002  # the word of torch
    parallel: str = "",
    position: int = 0,
    checkpointing: str = "",
    hardware: str = "",
) -> Captured:
    """Record one iteration of a copy of a PyTorch model without a GPU and without memory.

    A model by name or file is captured in a child process, as by the command.

    Args:
        model: a `torch.nn.Module`, a function without arguments that makes one (without memory), or a name or file as
            of `vdnnsim capture`: `timm:convnext_base`, `my_model.py:make`, `meta-llama/Llama-3.1-8B`, `config.json`.
        inputs: of forward: a tensor, as N x C x H x W images or N x T indices of tokens, a tuple of arguments, a
            dictionary of arguments by name, or a pair of both; for a model by name or file `FILE.py:NAME`.
        loss: a function from the output to a scalar; by default the model's own, or an assumed one with a note.
        batch: samples; by default the first size of the first tensor of the inputs.
        image: (C, H, W), the size of an image, for a model by name or file.
        tokens: T, the tokens of a sequence, for a model by name or file.
        mode: `training` or `inference`.
        precision: `float32`, `tf32`, `bfloat16`, `float16`, `amp_bfloat16` or `amp_float16`.
        optimizer: a name or class as of `torch.optim`, with PyTorch's defaults; `momentum`, and `momentum_decay` with
            weight decay, of SGD; `adamw_fused`; `adamw_for_loop`, which is `foreach=False`; `adam8bit` or `adamw8bit`
            of bitsandbytes, which need not be installed; or `none`.
        lora: rank of adapters around every linear layer but that of the output, with all else frozen, as peft's
            `target_modules="all-linear"`.
        accumulate: micro-batches before a step of the optimizer.
        in_backward: whether each parameter is updated in backward, in a hook of
            `register_post_accumulate_grad_hook` that frees its gradient.
        param_groups: groups of parameters that the optimizer updates one after the other.
        loss_chunks: slices of the tokens; cross entropy of each is computed apart, in a checkpoint.
        channels_last: whether images and weights of convolutions are in channels-last memory format.
        real: whether to run the model with real tensors: one by name or file on a GPU if there is one, else on the CPU.
        compile: whether torch.compile compiles the model, without the loss.
        parallel: a layout over several GPUs, one rank of which is captured: `ddp=8`, `zero1=8`, `fsdp=8`, `zero2=8`,
            `hsdp=2x4`, `tp=8` or `fsdp=4,tp=2`; `batch` is that of a rank, or of the ranks of `tp` together. `ranks=8`
            takes a function that returns a model that is wrapped for eight, `ranks=8,pp=2` one that returns the
            schedule of its stages. `pp=4` is a pipeline of `accumulate` micro-batches. `fsdp=8,offload=cpu` has shards,
            their gradients and optimizer states in host memory; `wrap=100M`, `prefetch=2`, `reduce=bfloat16`,
            `sync=last` and others are options of it (docs/start/several.md).
        position: of the captured rank in a pipeline, from 0 on.
        checkpointing: `full` recomputes the blocks of the model in backward, `selective` all but what is costly, a
            number every so many blocks whole.
        hardware: for whose card it is captured, a profile by name or path, without real tensors; by default one of
            compute capability 8.9. `simulate` and others capture it anew where that of theirs differs.

    Returns:
        the step: its storages in bytes, tensors with their shapes, and operations in order. It has no times: `simulate`
        adds those of a machine.

    Raises:
        CaptureError: the model cannot be captured, or an argument has no such value.
        ProfileError: there is no such profile.
        DeviceError: PyTorch is missing.
    """
    chosen: dict[str, Any] = {
        "mode": Entry("", "mode", mode, CaptureError).choice(Mode, "a mode"),
        "precision": precision_named(precision),
        "optimizer": optimizer_named(optimizer),
        "lora": lora,
        "accumulate": accumulate,
        "in_backward": in_backward,
        "param_groups": param_groups,
        "loss_chunks": loss_chunks,
        "channels_last": channels_last,
        "parallel": parallel,
        "position": position,
        "checkpointing": checkpointing,
        "compiled": compile,
    }
    if loss is not None and not callable(loss):
        raise CaptureError(f"loss: found {describe(loss)}, expected a function from the output to a scalar")
    if hardware and real:
        raise CaptureError("hardware: found with real tensors, which are on a device of their own")
    from calibration.capture.request import DEFAULT_CAPABILITY

    chosen["compute_capability"] = _capability_of(hardware) if hardware else DEFAULT_CAPABILITY
    if isinstance(model, str):
        sizes = {"image": image, "tokens": tokens, "inputs": inputs}
        again = of_name(model, batch, loss, chosen, **sizes, real=real)
    elif image is not None or tokens is not None:
        raise CaptureError("image and tokens: found for a model in Python, expected inputs")
    else:
        again = of_object(model, inputs, batch, loss, chosen, real=real)
    step, again = again.at(batch)
    return _recapturable(step, None if real else again)


def _capability_of(hardware: str) -> tuple[int, int]:
    from calibration.pretend.card import compute_capability

    capability = compute_capability(profile_named(hardware, Path()).server)
    if capability is None:
        raise CaptureError(
            f"hardware: the compute capability of {hardware} is unknown; expected it in the `gpu` of its profile"
        )
    return capability


def for_machine(step: CapturedStep, server: "Server") -> CapturedStep:
    """Return a step as captured for the card of a machine; as it is where it cannot be captured again."""
    again = step.__dict__.get(_AGAIN) if isinstance(step, Captured) else None
    if again is None or step.compute_capability is None:
        return step
    from calibration.pretend.card import compute_capability

    capability = compute_capability(server)
    if capability is None or capability == step.compute_capability:
        return step
    return _recapturable(*again.for_card(step, capability))


def models_by_card(step: CapturedStep, model: "CapturedModel", way: "Execution") -> "Callable[[Server], CapturedModel]":
    """Return a function to the model of a step as captured for the card of a machine, once for all cards alike."""
    captured_for = step.compute_capability
    if captured_for is None or not isinstance(step, Captured) or _AGAIN not in step.__dict__:
        return lambda _: model
    from calibration.capture.card_classes import captured_alike
    from calibration.pretend.card import compute_capability
    from vdnnsim.dnn.captured_on_card import ModelsByCard

    again = step.__dict__[_AGAIN]
    models = ModelsByCard(
        model, captured_for, lambda there: model_of(_recapturable(*again.for_card(step, there)), way), captured_alike
    )
    return lambda server: models.of(compute_capability(server) or captured_for)


def model_of(step: CapturedStep, way: "Execution") -> "CapturedModel":
    """Return the model of a step; one captured here is captured again at other batch sizes and in other loops.

    Of a pipeline it has all ranks.

    Raises:
        CaptureError: it is one of a pipeline that cannot be captured again.
    """
    from vdnnsim.engine.host import Execution

    again = step.__dict__.get(_AGAIN) if isinstance(step, Captured) else None

    def executed(name: str) -> "CapturedModel":
        other = Execution(name)
        compiled = other is Execution.COMPILED
        if again is None or step.compiled == compiled:
            return model_of(step, other)
        return model_of(_recapturable(*again.at(again.batch_size, compiled=compiled)), other)

    if step.pipeline > 1:
        first, *others = _ranks_of(step)
        return _of_rank(first, way, capture_execution=executed, others=[_of_rank(each, way) for each in others])
    recapture = step.at_batch if isinstance(step, Captured) else None
    if recapture is None:
        return _of_rank(step, way, capture_execution=executed)

    def of_lengths(lengths: "Sequence[int]") -> "list[CapturedModel]":
        return [model_of(recapture(step.part_size, tokens=each), way) for each in lengths]

    def in_loop(loop: "Loop", batch_size: int) -> "CapturedModel | None":
        changed = dict(loop.changes)
        if loop.precision:
            changed["precision"] = Precision(loop.precision)
        try:
            return model_of(recapture(batch_size, **changed), way)
        except CaptureError:
            return None

    of_any_length = of_lengths if again and again.any_length else None
    # What Inductor makes of other loops is not captured, nor are those of micro-batches that overlap or differ.
    in_any_loop = None if step.compiled or step.micro_batches > 1 else in_loop
    captures = {"capture_lengths": of_any_length, "capture_loop": in_any_loop, "capture_execution": executed}
    model = _of_rank(step, way, **captures)
    model.capture_card = models_by_card(step, model, way)
    return model


def _of_rank(step: CapturedStep, way: "Execution", **others: Any) -> "CapturedModel":  # noqa: ANN401
    """Return the model of one step at any batch at which it can be captured."""
    from vdnnsim.dnn.captured_model import CapturedModel
    from vdnnsim.scenario.captured import as_executed

    again = step.at_batch if isinstance(step, Captured) else None
    capture = None if again is None else lambda batch_size: as_executed(again(batch_size), way)
    return CapturedModel(as_executed(step, way), capture=capture, **others)


def _ranks_of(step: CapturedStep) -> list[Captured]:
    """Return the steps of all ranks of a pipeline, which wait for each other."""
    again = step.__dict__.get(_AGAIN) if isinstance(step, Captured) else None
    if again is None:
        raise CaptureError(
            f"step: is rank {step.position} of {step.parallel}, expected one that `vdnnsim.capture` returned, or a "
            "scenario that names the files of all ranks"
        )
    return [_recapturable(*again.at(again.batch_size, position=each)) for each in range(step.pipeline)]


def _recapturable(step: CapturedStep, again: Again | None) -> Captured:
    found = Captured(**msgspec.structs.asdict(step))
    if again is not None:
        found.__dict__[_AGAIN] = again
    return found
