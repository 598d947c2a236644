"""The command `parallel`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vdnnsim.cli.captures import captured_ranks, for_card, request_of
from vdnnsim.cli.model_options import TRIED_BY_RANK, captures_ranks
from vdnnsim.cli.options import HARDWARE, MODELS, out_option, prints_table, read_option
from vdnnsim.cli.output import Output, report_folder
from vdnnsim.errors import InputError
from vdnnsim.files.messages import options_text, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from calibration.capture.request import Request
    from vdnnsim.analysis.layouts import LayoutRanking, Setup
    from vdnnsim.dnn.captured_step import CapturedStep


class Counts(click.ParamType[tuple[int, ...]]):
    """Numbers of GPUs, `8` or `1,2,4,8`."""

    name = "counts"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:  # noqa: ARG002
        if isinstance(value, tuple):
            return value
        found = str(value).split(",")
        counts = sorted({int(each) for each in found if each.isascii() and each.isdigit()})
        if len(counts) < len(found) or counts[0] < (1 if len(counts) > 1 else 2):
            raise InputError(f"--gpus: found {quote(str(value))}, expected a number from 2 on, or several, as 1,2,4,8")
        return tuple(counts)


@click.command()
@click.argument("model", metavar="[MODEL]", type=MODELS, required=False)
@click.option("--model", "named_model", type=MODELS, metavar="MODEL", help="MODEL, as other commands take it.")
@click.option("--batch", "batch_size", type=int, required=True, metavar="N", help="Samples of a step, for each GPU.")
@click.option(
    "--accumulate",
    type=int,
    metavar="N",
    help="Micro-batches of --batch before an update; 1 by default.",
)
@click.option(
    "--gpus",
    "counts",
    type=Counts(),
    default=(),
    metavar="N[,N...]",
    help="How many GPUs; by default all of the server. Several, as 1,2,4,8, show how throughput and memory scale.",
)
@click.option("--hardware", type=HARDWARE, required=True, help="A server, as h100_x8, or a card of one.")
@click.option(
    "--layout", "layouts", multiple=True, metavar="NAME", help="Try these, as fsdp=8; by default the usual ones."
)
@captures_ranks
@out_option("reports/<model>-parallel-<server>/")
@prints_table
def parallel(
    model: str | None,
    named_model: str | None,
    batch_size: int,
    *,
    counts: tuple[int, ...],
    hardware: str,
    layouts: tuple[str, ...],
    out: Path | None,
    output: Output,
    **words: Any,  # noqa: ANN401 - options of a capture, each of its type
) -> None:
    """Rank the ways to train MODEL on several GPUs: does it fit, how fast, and what waits for what.

    One rank of each layout is captured and replayed, with as few checkpoints as fit: fully sharded (fsdp, hsdp, zero2),
    with split layers (tp), in stages (pp) or copied (ddp, zero1). Each layout trains --batch samples for each GPU.
    Prints a table, and its first line as a command to copy; writes a page, a CSV and a picture to DIR. For several
    numbers of GPUs it ranks the fastest of fsdp, hsdp and ddp on each.
    """
    from calibration.capture.isolation import CapturingProcess
    from vdnnsim.cli.scenario_input import checked_rounds
    from vdnnsim.cost.model import checked_profile
    from vdnnsim.dnn.layout import parse_layout
    from vdnnsim.hardware.profile import find_profile
    from vdnnsim.report.layouts import (
        LAYOUTS_WRITER,
        SCALING_WRITER,
        layouts_table,
        samples_text,
        scaling_table,
        write_layouts,
        write_scaling,
    )
    from vdnnsim.report.progress import ProgressBar
    from vdnnsim.study.layouts import rank_layouts, scale_layouts
    from vdnnsim.study.servers import choice_text, server_for
    from vdnnsim.study.usual_layouts import data_layouts_of, gpus_of, layouts_of

    if (model is None) is (named_model is None):
        raise InputError("--model: expected one of MODEL and --model MODEL")
    model = model or named_model
    assert model is not None
    asked = [parse_layout(name, "--layout") for name in layouts]
    named = checked_profile(find_profile(hardware, Path()))
    if len(counts) > 1 and layouts:
        raise InputError(
            f"--layout: found {layouts[0]} with several numbers of GPUs, expected one number, or no layout"
        )
    numbers = [read_option("--layout", gpus_of, asked, each) for each in counts or (None,)]
    profiles = dict(read_option("--hardware", server_for, named, each) for each in numbers)
    gpus, profile = max(profiles.items())
    server = choice_text(named, profiles.values())
    hardware = hardware if profile is named else profile.server.name
    chosen = (each.removeprefix("--") for each in TRIED_BY_RANK)
    request = request_of(model, batch_size, {**dict.fromkeys(chosen), **words})
    request.check()
    rounds = checked_rounds(words.pop("accumulate"), request)
    request = for_card(request, profile.server)
    is_curve = len(counts) > 1
    folder = report_folder(
        out, f"{request.short_name}-parallel-{profile.server.name}", SCALING_WRITER if is_curve else LAYOUTS_WRITER
    )

    process = CapturingProcess()

    def capture(setup: "Setup") -> "Sequence[CapturedStep]":
        return captured_ranks(_of_rank(request, setup), process)

    what = f"{request.short_name}, {samples_text(batch_size, rounds)}, {request.precision.value}"
    if is_curve:
        of_data = partial(data_layouts_of, accumulates=rounds > 1)
        find = partial(scale_layouts, [*profiles], batch_size, profiles.__getitem__, capture, micro_batches=rounds)
        with ProgressBar() as bar:
            bar.expect(sum(len(of_data(each, of.server.gpu_count)) for each, of in profiles.items()))
            rankings = find(bar.done)
        table = scaling_table(rankings, what, output.has_all, server)
        written = write_scaling(rankings, table, request.short_name, profile.sources, folder)
        output.show(table, written.notice(folder, "scaling.md"))
        return
    names = [each.text for each in asked] or layouts_of(gpus, profile.server.gpu_count, accumulates=rounds > 1)
    with ProgressBar() as bar:
        bar.expect(len(names))
        ranking = rank_layouts(
            gpus, names, batch_size, profile, capture, bar.done, micro_batches=rounds, tries_all=bool(layouts)
        )
    table = layouts_table(ranking, what, _command(ranking, model, hardware, words), output.has_all, server)
    written = write_layouts(ranking, table, request.short_name, profile.sources, folder)
    output.show(table, written.notice(folder, "layouts.md"))


def _of_rank(request: "Request", setup: "Setup") -> "Request":
    import msgspec

    return msgspec.structs.replace(
        request,
        batch_size=setup.batch_size,
        accumulate=setup.captured_together,
        parallel=setup.layout,
        checkpointing="" if setup.checkpointing == "none" else setup.checkpointing,
    )


def _command(ranking: "LayoutRanking", model: str, hardware: str, words: "Mapping[str, Any]") -> str:
    """Return the command that runs the first layout; empty if none fits."""
    if not ranking.ranked:
        return ""
    setup = ranking.ranked[0].setup
    options = {"model": model, "batch": setup.batch_size, **words}
    checkpointing = None if setup.checkpointing == "none" else setup.checkpointing
    options |= {"accumulate": setup.micro_batches if setup.micro_batches > 1 else None}
    options |= {"parallel": setup.layout, "checkpointing": checkpointing, "hardware": hardware}
    return f"vdnnsim run {options_text(options)}"
