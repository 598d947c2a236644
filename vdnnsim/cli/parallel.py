"""The command `parallel`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.completion import HARDWARE, MODELS
from vdnnsim.cli.model_options import TRIED_BY_RANK, captures_ranks
from vdnnsim.cli.options import out_option, prints_table, read_option
from vdnnsim.cli.output import Output, report_folder
from vdnnsim.cli.question import captured_ranks, compute_capability, request_of
from vdnnsim.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from calibration.capture.request import Request
    from vdnnsim.analysis.layouts import Layout, LayoutRanking
    from vdnnsim.dnn.captured_step import CapturedStep


@click.command()
@click.argument("model", metavar="[MODEL]", type=MODELS, required=False)
@click.option("--model", "named_model", type=MODELS, metavar="MODEL", help="MODEL, as other commands take it.")
@click.option("--batch", "batch_size", type=int, required=True, metavar="N", help="Samples of a step, for each GPU.")
@click.option("--gpus", type=click.IntRange(min=2), metavar="N", help="How many GPUs; by default all of the server.")
@click.option("--hardware", type=HARDWARE, required=True, help="A server, as h100_x8, or a card of one.")
@click.option(
    "--layout", "layouts", multiple=True, metavar="NAME", help="Try these, as fsdp=8; by default all that are usual."
)
@captures_ranks
@out_option("reports/<model>/")
@prints_table
def parallel(
    model: str | None,
    named_model: str | None,
    batch_size: int,
    *,
    gpus: int | None,
    hardware: str,
    layouts: tuple[str, ...],
    out: Path | None,
    output: Output,
    **words: object,
) -> None:
    """Rank the ways to train MODEL on several GPUs: does it fit, how fast, and what waits for what.

    One rank of each layout is captured and replayed, with as few checkpoints as fit: fully sharded (fsdp, hsdp, zero2),
    with split layers (tp), in stages (pp) or copied (ddp, zero1). Each layout trains --batch samples for each GPU. The
    table here, its first line as a command to copy; page, CSV and picture in DIR.
    """
    import msgspec

    from calibration.capture.isolation import CapturingProcess
    from calibration.capture.parallel.layout import parse_layout
    from vdnnsim.cli.progress import ProgressBar
    from vdnnsim.cost.model import checked_profile
    from vdnnsim.hardware.profile import find_profile
    from vdnnsim.report.layouts import LAYOUT_FILES, LAYOUTS_WRITER, layouts_table, write_layouts
    from vdnnsim.study.layouts import layouts_of, rank_layouts, server_for

    if (model is None) is (named_model is None):
        raise InputError("--model: expected one of MODEL and --model MODEL")
    model = model or named_model
    assert model is not None
    ranks = {name: parse_layout(name, "--layout").ranks for name in layouts}
    named = checked_profile(find_profile(hardware, Path()))
    gpus, profile = read_option("--hardware", server_for, named, ranks, gpus)
    hardware = hardware if profile is named else profile.server.name
    chosen = (each.removeprefix("--") for each in TRIED_BY_RANK)
    request = request_of(model, batch_size, {**dict.fromkeys(chosen), **words})
    request.check()
    if capability := compute_capability(profile.server):
        request = msgspec.structs.replace(request, compute_capability=capability)
    names = layouts or layouts_of(gpus, profile.server.gpu_count)
    folder = report_folder(out, request.short_name, LAYOUT_FILES, LAYOUTS_WRITER)

    process = CapturingProcess()

    def capture(layout: "Layout") -> "Sequence[CapturedStep]":
        return captured_ranks(_of_rank(request, layout), process)

    with ProgressBar() as bar:
        bar.expect(len(names))
        ranking = rank_layouts(gpus, names, batch_size, profile, capture, bar.done, tries_all=bool(layouts))
    what = f"{request.short_name}, {batch_size} samples for each GPU, {request.precision.value}"
    table = layouts_table(ranking, what, _command(ranking, model, hardware, words), output.has_all)
    written = write_layouts(ranking, table, request.short_name, profile.sources, folder)
    output.show(table, written.notice(folder, "layouts.md"))


def _of_rank(request: "Request", layout: "Layout") -> "Request":
    import msgspec

    return msgspec.structs.replace(
        request,
        batch_size=layout.batch_size,
        accumulate=layout.micro_batches,
        parallel=layout.name,
        checkpointing="" if layout.checkpointing == "none" else layout.checkpointing,
    )


def _command(ranking: "LayoutRanking", model: str, hardware: str, words: "Mapping[str, Any]") -> str:
    """Return the command that runs the first layout; empty if none fits."""
    if not ranking.ranked:
        return ""
    layout = ranking.ranked[0].layout
    options = {"--batch": layout.batch_size, **{f"--{name.replace('_', '-')}": each for name, each in words.items()}}
    checkpointing = None if layout.checkpointing == "none" else layout.checkpointing
    options |= {"--accumulate": layout.micro_batches if layout.micro_batches > 1 else None}
    options |= {"--parallel": layout.name, "--checkpointing": checkpointing, "--hardware": hardware}
    given = [
        part
        for name, value in options.items()
        if value is not None
        for part in ((name,) if value is True else (name, str(value)))
    ]
    return shlex.join(("vdnnsim", "run", "--model", model, *given))
