"""The layouts that are tried for so many GPUs."""

from collections.abc import Sequence
from typing import Final

from vdnnsim.dnn.layout import Layout, parse_layout
from vdnnsim.errors import InputError

FIRST: Final = "fsdp"
"""Its rank says what others hold of parameters, gradients and states."""
_MOST_STAGES: Final = 4


def layouts_of(gpus: int, gpus_of_host: int, *, accumulates: bool = False) -> tuple[str, ...]:
    """Return the layouts that are tried for so many GPUs; over several hosts also copies, one for each host.

    The last, with shards in host memory, is for where no other fits. Layers are split over two GPUs, and over all of a
    host. A pipeline has two stages, or one on each host or on several, at most four, for each is captured; layers of
    a stage may be split, too. Where gradients are
    accumulated, DDP reduces those of the last micro-batch alone, which costs no memory; for FSDP, which then holds
    whole gradients, both ways are tried, and the host, which would add them up, holds no shards.
    """
    copies = gpus // gpus_of_host
    hybrid = (f"hsdp={copies}x{gpus_of_host}",) if gpus_of_host < gpus == copies * gpus_of_host else ()
    splits = (each for each in sorted({2, min(gpus, gpus_of_host)}) if gpus % each == 0)
    tensor = (f"tp={each}" if each == gpus else f"{FIRST}={gpus // each},tp={each}" for each in splits)
    stages = max((each for each in range(2, _MOST_STAGES + 1) if hybrid and copies % each == 0), default=2)
    pipeline: tuple[str, ...] = (
        (f"pp={stages},{FIRST}={gpus // stages}",) if gpus > stages and gpus % stages == 0 else ()
    )
    if hybrid and copies % stages == 0:
        shards = f"{FIRST}={copies // stages}," if copies > stages else ""
        pipeline += (f"pp={stages},{shards}tp={gpus_of_host}",)
    last = ",sync=last" if accumulates else ""
    sharded = (f"{FIRST}={gpus}", *([f"{FIRST}={gpus}{last}"] if accumulates else ()))
    on_host = () if accumulates else (f"{FIRST}={gpus},offload=cpu",)
    whole = f"zero2={gpus}", f"zero1={gpus}{last}", f"ddp={gpus}{last}"
    return (*sharded, *hybrid, *tensor, *pipeline, *whole, *on_host)


def data_layouts_of(gpus: int, gpus_of_host: int, *, accumulates: bool = False) -> tuple[str, ...]:
    """Return those in which each GPU has samples of its own; the empty one is of one GPU."""
    if gpus == 1:
        return ("",)
    usual = map(parse_layout, layouts_of(gpus, gpus_of_host, accumulates=accumulates))
    return tuple(
        each.text
        for each in usual
        if each.data in {FIRST, "hsdp", "ddp"} and each.tensor == each.pipeline == 1 and not each.offloads
    )


def gpus_of(layouts: Sequence[Layout], gpus: int | None = None) -> int | None:
    """Return how many GPUs are asked for, by default those of layouts; None without these.

    Raises:
        InputError: a layout is for another number.
    """
    asked = gpus or next((each.ranks for each in layouts), None)
    for each in layouts:
        if each.ranks != asked:
            raise InputError(f"{each.text} is for {each.ranks} GPUs, expected {asked}")
    return asked
