"""The command `capture`."""

from pathlib import Path

import click

from vdnnsim.cli.captures import request_of
from vdnnsim.cli.model_options import captures
from vdnnsim.cli.options import HARDWARE, out_option, prints_table
from vdnnsim.cli.output import Output, check_file
from vdnnsim.errors import InputError


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("--batch", "batch_size", type=int, required=True, metavar="N", help="Batch size.")
@captures
@click.option(
    "--accumulate", default=1, show_default=True, metavar="N", help="Micro-batches before a step of the optimizer."
)
@click.option("--hardware", type=HARDWARE, help="Capture for this card; by default one of capability 8.9.")
@click.option("--compile", "compiled", is_flag=True, help="Capture what torch.compile makes of it.")
@click.option("--pretend", "pretended", type=HARDWARE, default="", help="Run it on a pretended card, by a profile.")
@out_option("<model>.step.json", "FILE")
@prints_table
def capture(
    model: str,
    batch_size: int,
    accumulate: int,
    *,
    hardware: str | None,
    pretended: str,
    compiled: bool,
    out: Path | None,
    output: Output,
    **words: object,
) -> None:
    """Record one iteration of a PyTorch MODEL without a GPU.

    MODEL is FILE.py:NAME, a function without arguments that returns a torch.nn.Module, or a class of one; a name, such
    as torchvision:resnet50, timm:convnext_base or meta-llama/Llama-3.1-8B, without the library if only one has it; or
    the config.json of a model of huggingface.co, or its folder. Named models are made of their configuration, with
    random weights and without downloads. The loss is the model's own or, with a note, one that fits its output. The
    code of FILE runs as it is: capture only what you would run. Reading the file that is written runs nothing; a
    pipeline has one for each rank.
    """
    import msgspec

    from calibration.capture.isolation import captured
    from calibration.pretend.card import compute_capability
    from vdnnsim.dnn.captured_file import write_captured_step
    from vdnnsim.hardware.profile import find_profile, load_profile
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.report.tables.captured import COLUMNS, captured_rows, captured_table
    from vdnnsim.scenario.captured import SUFFIX

    request = msgspec.structs.replace(
        request_of(model, batch_size, words), accumulate=accumulate, pretended=pretended, compiled=compiled
    )
    if hardware is not None and request.runs:
        raise InputError(
            "--hardware: found with real tensors, which are on a device of their own; expected one of the two"
        )
    request.check()
    if hardware is not None:
        capability = compute_capability(load_profile(find_profile(hardware, Path())).server)
        if capability is None:
            raise InputError(
                f"--hardware: the compute capability of {hardware} is unknown; expected it in the `gpu` of its profile"
            )
        request = msgspec.structs.replace(request, compute_capability=capability)
    path = Path(f"{request.short_name}{SUFFIX}") if out is None else out
    paths = [path]
    if request.layout and request.layout.pipeline > 1:
        stem = path.name.removesuffix(SUFFIX)
        paths = [path.with_name(f"{stem}.{position}{SUFFIX}") for position in range(request.layout.pipeline)]
    for each in paths:
        check_file(each)
    found = [captured(msgspec.structs.replace(request, position=position)) for position in range(len(paths))]
    for (step, _), each in zip(found, paths, strict=True):
        write_captured_step(step, each)
    step, kept = found[0]
    steps = str(path) if len(paths) == 1 else f"[{', '.join(map(str, paths))}]"
    output.show(
        ResultTable(COLUMNS, captured_rows(step), captured_table(step, output.has_all)),
        *([] if kept is None else [f"{request.model} is as it was captured before; {kept} keeps that"]),
        f"wrote {', '.join(map(str, paths))}; scenarios name it as `workload: {{step: {steps}}}`",
    )
