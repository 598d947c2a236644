"""`vdnnsim.capture`, and the captured step that it returns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from vdnnsim.dnn.captured_file import write_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.training_loops import optimizer_named
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError, PolicyError, ProfileError
from vdnnsim.files.messages import describe
from vdnnsim.files.value import Entry
from vdnnsim.report.result_table import ResultTable, Shown
from vdnnsim.units import Precision

if TYPE_CHECKING:
    from vdnnsim.dnn.captured_model import CapturedModel
    from vdnnsim.dnn.training_loops import Loop
    from vdnnsim.engine.host import Execution
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.policies.interface import Policy


_CAPTURE: Final = "_capture"


class Captured(Shown, CapturedStep, frozen=True, dict=True):
    """A captured step that is shown as a table; one captured here can be captured at other batch sizes."""

    @property
    def at_batch(self) -> Callable[..., CapturedStep] | None:
        """Captures the same at another batch size, and with other words of `capture`, as `parallel`.

        None of a step from a file, or with real tensors.
        """
        return self.__dict__.get(_CAPTURE)

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

    Returns:
        the step: its storages in bytes, tensors with their shapes, and operations in order. It has no times: `simulate`
        adds those of a machine.

    Raises:
        CaptureError: the model cannot be captured, or an argument has no such value.
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
    }
    if isinstance(model, str):
        from calibration.capture.isolation import captured
        from calibration.capture.request import Request

        if loss is not None:
            raise CaptureError(f"loss: {model} is captured in a process of its own, expected a model that has its loss")
        if batch is None:
            raise CaptureError(f"batch: {model} has none by default, expected an integer from 1 on")
        request = Request(
            model=model,
            batch_size=batch,
            image=image,
            tokens=tokens,
            inputs=inputs,
            real=real,
            compiled=compile,
            **chosen,
        )

        def of(batch_size: int, **changes: Any) -> CapturedStep:  # noqa: ANN401
            return captured(msgspec.structs.replace(request, batch_size=batch_size, **changes))[0]

        step = of(batch)
    else:
        from calibration.availability import require_torch

        require_torch("capture")
        from calibration.capture.capture import CaptureDevice
        from calibration.capture.object_capture import captured_object, resized

        if image is not None or tokens is not None:
            raise CaptureError("image and tokens: found for a model in Python, expected inputs")
        if compile and real:
            raise CaptureError("compile: found with real tensors, expected real=False")
        device = CaptureDevice(real=real, compiled=compile)
        step, _ = captured_object(model, inputs, loss=loss, batch_size=batch, device=device, **chosen)

        def of(batch_size: int, **changes: Any) -> CapturedStep:  # noqa: ANN401
            other, words = resized(inputs, batch_size), chosen | changes
            return captured_object(model, other, loss=loss, batch_size=None, device=device, **words)[0]

    return _recapturable(step, of if not real and (isinstance(model, str) or batch is None) else None)


def precision_named(precision: Any) -> Precision:  # noqa: ANN401  # whatever a user passes
    """Return a precision by its name, or raise CaptureError, which for a type of PyTorch says its names."""
    if type(precision).__name__ == "dtype":
        name = str(precision).removeprefix("torch.")
        names = [repr(each.value) for each in Precision if each.value.endswith(name)]
        if names:
            ways = " or, under autocast, ".join(names)
            raise CaptureError(f"precision: found {precision}, expected {ways}")
    return Entry("", "precision", precision, CaptureError).choice(Precision, "a precision")


def model_of(step: CapturedStep, way: "Execution", **words: Any) -> "CapturedModel":  # noqa: ANN401
    """Return the model of a step; one captured here is captured again at other batch sizes and in other loops.

    `words` are those of its loop that differ from what was asked for.
    """
    from vdnnsim.dnn.captured_model import CapturedModel
    from vdnnsim.scenario.captured import as_executed

    recapture = step.at_batch if isinstance(step, Captured) else None
    if recapture is None:
        return CapturedModel(as_executed(step, way))
    # Captures are compared by their types as well.
    base = CapturedStep(**msgspec.structs.asdict(step))

    def in_loop(loop: "Loop") -> "CapturedModel | None":
        changed = words | loop.changes
        if loop.precision:
            changed["precision"] = Precision(loop.precision)
        try:
            other = _recapturable(recapture(step.batch_size, **changed), recapture)
        except CaptureError:
            return None
        return model_of(other, way, **changed)

    return CapturedModel(
        as_executed(base, way),
        capture=lambda batch_size: as_executed(recapture(batch_size, **words), way),
        # What Inductor makes of other loops is not captured.
        capture_loop=None if step.compiled else in_loop,
    )


def _recapturable(step: CapturedStep, capture: Callable[..., CapturedStep] | None) -> Captured:
    found = Captured(**msgspec.structs.asdict(step))
    if capture is not None:
        found.__dict__[_CAPTURE] = capture
    return found


def machines_named(hardware: Sequence[str], folder: Path, gpus: int = 1) -> "Sequence[Profile]":
    """Return profiles by name or path, found beside a folder; by default one for each card, with enough GPUs."""
    from vdnnsim.hardware.profile import shipped_profiles
    from vdnnsim.study.machines import one_of_each_card

    named = [profile_named(each, folder) for each in hardware]
    return named or one_of_each_card(shipped_profiles(), gpus)


def profile_named(hardware: object, folder: Path) -> "Profile":
    """Return a profile by name or path, found beside a folder, or raise ProfileError."""
    from vdnnsim.cost.model import checked_profile
    from vdnnsim.hardware.profile import find_profile

    if not isinstance(hardware, str | Path):
        raise ProfileError(f"hardware: found {describe(hardware)}, expected the name of a profile, as 'rtx_4090'")
    return checked_profile(find_profile(str(hardware), folder))


def policies_named(names: str | Sequence[str]) -> "tuple[Policy, ...]":
    """Return policies by their names in scenarios."""
    from vdnnsim.policies.registry import known_policies, resolve_policy

    if not names:
        raise PolicyError("policy: found none, expected a name, as 'pytorch', or several")
    known = known_policies()
    return tuple(resolve_policy(each, known, advice="") for each in ([names] if isinstance(names, str) else names))
