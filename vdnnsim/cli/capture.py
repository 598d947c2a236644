"""The command `capture`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import FilePath, prints_table
from vdnnsim.cli.output import Output, check_file
from vdnnsim.errors import InputError

if TYPE_CHECKING:
    from calibration.capture.request import Request


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("--batch", "batch_size", type=int, required=True, metavar="N", help="Batch size.")
@click.option("--image", metavar="CxHxW", help="Sizes of an image, channels first, as 3x224x224.")
@click.option("--tokens", type=int, metavar="T", help="Of a sequence.")
@click.option("--inputs", metavar="FILE.py:NAME", help="A function of the batch size: returns the model's arguments.")
@click.option("--mode", default="training", show_default=True, metavar="MODE", help="training or inference.")
@click.option("--precision", default="float32", show_default=True, metavar="NAME", help="As amp_bfloat16.")
@click.option("--optimizer", default="adamw", show_default=True, metavar="NAME", help="As torch.optim has it, or none.")
@click.option("--accumulate", default=1, show_default=True, metavar="N", help="Batches before a step of the optimizer.")
@click.option("--hardware", metavar="NAME", help="As on the card of a profile; by default one of capability 8.9.")
@click.option("--channels-last", is_flag=True, help="Images and weights of convolutions as memory_format has it.")
@click.option(
    "--real",
    is_flag=True,
    help="Run the model with real tensors, on the GPU where there is one, and say how a capture without differs.",
)
@click.option("--pretend", "pretended", metavar="NAME", default="", help="Run it on the pretended card of a profile.")
@click.option("--out", metavar="FILE", type=FilePath(), help="Where to write; by default <model>.step.json.")
@prints_table
def capture(  # noqa: PLR0913, PLR0917  # an argument for each option
    model: str,
    batch_size: int,
    image: str | None,
    tokens: int | None,
    inputs: str | None,
    mode: str,
    precision: str,
    optimizer: str,
    accumulate: int,
    *,
    hardware: str | None,
    channels_last: bool,
    real: bool,
    pretended: str,
    out: Path | None,
    output: Output,
) -> None:
    """Record one iteration of a PyTorch MODEL without a GPU.

    MODEL is FILE.py:NAME, a function without arguments that returns a torch.nn.Module, or a class of one; or
    torchvision:resnet50, timm:convnext_base, transformers:llama-7b, made of their configuration without weights. A loss
    is the model's own, or one that fits its output, and that is said. The code of FILE is run as it is: capture only
    what you would run. The file that is written runs nothing when it is read.
    """
    import msgspec

    from calibration.capture.isolation import captured
    from calibration.capture.request import Request, parse_image
    from vdnnsim.dnn.captured_file import write_captured_step
    from vdnnsim.dnn.workload import Mode
    from vdnnsim.files.value import Entry
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.report.tables.captured import COLUMNS, captured_rows, captured_table
    from vdnnsim.units import Precision

    if hardware is not None and (real or pretended):
        raise InputError("--hardware: found with real tensors, which are of the device that they are on")
    request = Request(
        model=model,
        batch_size=batch_size,
        image=None if image is None else parse_image(image),
        tokens=tokens,
        inputs=inputs,
        mode=Entry("", "--mode", mode, InputError).choice(Mode, "a mode"),
        precision=Entry("", "--precision", precision, InputError).choice(Precision, "a precision"),
        optimizer=optimizer,
        accumulate=accumulate,
        channels_last=channels_last,
        real=real,
        pretended=pretended,
    )
    request.check()
    if hardware is not None:
        request = msgspec.structs.replace(request, compute_capability=_compute_capability(hardware))
    path = Path(f"{request.short_name}.step.json") if out is None else out
    check_file(path)
    step, kept = captured(request)
    write_captured_step(step, path)
    output.show(
        ResultTable(COLUMNS, captured_rows(step), captured_table(step, output.has_all)),
        *_as_before(request, kept),
        f"wrote {path}; scenarios name it as `workload: {{step: {path}}}`",
    )


def _compute_capability(hardware: str) -> tuple[int, int]:
    from vdnnsim.cli.model import compute_capability
    from vdnnsim.hardware.profile import find_profile, load_profile

    found = compute_capability(load_profile(find_profile(hardware, Path())).server)
    if found is None:
        raise InputError(f"--hardware: of the chip of {hardware} no compute capability is known")
    return found


def _as_before(request: "Request", kept: Path | None) -> list[str]:
    return [] if kept is None else [f"{request.model} is as it was captured before; {kept} keeps that"]
