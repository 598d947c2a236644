"""Options of commands that take a PyTorch model: how it is captured, and how it is run."""

from collections.abc import Mapping
from typing import Any, Final

import click

from vdnnsim.cli.options import MODELS, Command

CAPTURE: Final[Mapping[str, Mapping[str, Any]]] = {
    "--image": {"metavar": "CxHxW", "help": "Size of an image, channels first, as 3x224x224."},
    "--tokens": {"type": int, "metavar": "T", "help": "Tokens of a sequence."},
    "--inputs": {
        "metavar": "FILE.py:NAME",
        "help": "A function of batch size and --tokens that makes the model's arguments.",
    },
    "--mode": {"metavar": "MODE", "help": "training (default) or inference."},
    "--precision": {"metavar": "NAME", "help": "float32 (default), tf32, bf16, fp16, amp_bf16 or amp_fp16."},
    "--optimizer": {"metavar": "NAME", "help": "adamw (default), another of torch.optim, adamw8bit, or none."},
    "--in-backward": {
        "is_flag": True,
        "default": None,
        "help": "Update each parameter in backward, and free its gradient.",
    },
    "--param-groups": {"type": int, "metavar": "N", "help": "Update parameters in N groups, one after the other."},
    "--loss-chunks": {
        "type": int,
        "metavar": "N",
        "help": "Compute cross entropy over N slices of the tokens, one by one.",
    },
    "--lora": {"type": int, "metavar": "RANK", "help": "Train only LoRA adapters of all linear layers."},
    "--parallel": {
        "metavar": "LAYOUT",
        "help": "Capture one rank of several GPUs: ddp=8, zero1=8, fsdp=8, zero2=8, hsdp=2x4, tp=8, pp=4, fsdp=4,tp=2, "
        "ranks=8, fsdp=8,offload=cpu; the docs have all options.",
    },
    "--checkpointing": {"metavar": "HOW", "help": "Recompute blocks: full, selective, or every N-th, as 2."},
    "--real": {"is_flag": True, "default": None, "help": "Capture with real tensors, on the GPU if there is one."},
    "--channels-last": {"is_flag": True, "default": None, "help": "Keep images and weights in channels_last format."},
}
"""Options of a capture, by name."""
TRIED_BY_RANK: Final = ("--parallel", "--checkpointing", "--real")
RUN: Final[Mapping[str, Mapping[str, Any]]] = {
    "--allocator": {"metavar": "SETTINGS", "help": "Settings as in PYTORCH_ALLOC_CONF, or cudnn_benchmark:True."},
    "--execution": {"metavar": "NAME", "help": "eager (default), cuda_graphs or compiled."},
    "--accumulate": {"type": int, "metavar": "N", "help": "Micro-batches of --batch before an update; 1 by default."},
}


def _with_options(command: Command, options: Mapping[str, Mapping[str, Any]], prefix: str = "") -> Command:
    for name, option in reversed(list(options.items())):
        command = click.option(name, **{**option, "help": prefix + option["help"]})(command)
    return command


def captures(command: Command) -> Command:
    return _with_options(command, CAPTURE)


def captures_ranks(command: Command) -> Command:
    """Add the options of a capture but those in which ranks are tried, and real tensors, which have no other ranks."""
    return _with_options(command, {name: option for name, option in CAPTURE.items() if name not in TRIED_BY_RANK})


def describes_model(command: Command) -> Command:
    text = "A PyTorch model in place of SCENARIO, as `capture` takes it."
    model = click.option("--model", type=MODELS, metavar="MODEL", help=text)
    batch = {"--batch": {"type": int, "metavar": "N", "help": "Batch size."}}
    return model(_with_options(command, {**batch, **CAPTURE, **RUN}, "With --model: "))
