"""`parallel`, with steps made by hand in place of captures."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from calibration.capture import isolation
from calibration.capture.request import Request
from tests.captured_ranks import sharded
from tests.unit.cli.test_model import refusal, vdnnsim
from vdnnsim.cli.captures import request_of
from vdnnsim.cli.model_options import CAPTURE, TRIED_BY_RANK
from vdnnsim.cli.parallel import parallel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import CaptureError

ASKED = "parallel", "timm:chain", "--batch", "2", "--hardware"


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Request]:
    """What was captured; the model has no place under ZeRO-1 and in a pipeline."""
    requests: list[Request] = []

    def captured(asked: Sequence[Request], **_: object) -> tuple[tuple[CapturedStep, None], ...]:
        (request,) = asked
        requests.append(request)
        if request.parallel in {"zero1=8", "pp=2,fsdp=4"}:
            raise CaptureError("its optimizer has no shards" if request.parallel == "zero1=8" else "no blocks")
        step = msgspec.structs.replace(sharded(), ranks=8, parallel=request.parallel, batch_size=request.batch_size)
        return ((step, None),)

    monkeypatch.setattr(isolation, "captured_together", captured)
    monkeypatch.chdir(tmp_path)
    return requests


def test_ranking_of_layouts(captured: list[Request]) -> None:
    """Of seven layouts five fit without checkpoints; ranks of split layers train the samples of all of them.

    The folder has page, table, picture and manifest.
    """
    done = vdnnsim(*ASKED, "h100_x8")
    assert [(each.parallel, each.checkpointing, each.batch_size) for each in captured] == [
        ("fsdp=8", "", 2),
        ("fsdp=4,tp=2", "", 4),
        ("tp=8", "", 16),
        ("pp=2,fsdp=4", "", 1),
        *((name, "", 2) for name in ("zero2=8", "zero1=8", "ddp=8")),
    ]
    assert {each.compute_capability for each in captured} == {(9, 0)}
    assert "5 of 7 layouts fit on 8 GPUs of h100_x8" in done.stdout
    assert "zero1=8: its optimizer has no shards" in done.stdout
    assert "vdnnsim run --model timm:chain --batch 2 --parallel" in done.stdout
    assert {each.name for each in Path("reports/chain-parallel-h100_x8").iterdir()} == {
        *("layouts.csv", "layouts.json", "layouts.md", "layouts.png", "layouts_memory.png"),
    }


def test_one_layout(captured: list[Request]) -> None:
    """Its command is one line, however long."""
    options = "--tokens", "8192", "--precision", "amp_bf16", "--optimizer", "adamw_fused", "--param-groups", "8"
    done = vdnnsim(*ASKED, "h100_x8", "--layout", "fsdp=8", *options)
    assert [each.parallel for each in captured] == ["fsdp=8"]
    (command,) = (line for line in done.stdout.splitlines() if line.startswith("vdnnsim run"))
    assert len(command) > 120
    assert command.endswith(" --parallel fsdp=8 --hardware h100_x8")
    done = vdnnsim(*ASKED, "h100_x8", "--layout", "fsdp=8", "--optimizer", "none")
    assert " --optimizer none " in done.stdout


def test_a_request_writes_all_options_that_the_command_knows() -> None:
    """What it reads from them is the request; those in which it tries ranks are not among them."""
    given: dict[str, Any] = {
        "image": "3x8x8",
        "tokens": 7,
        "inputs": "a b.py:c",
        "mode": "inference",
        "precision": "amp_bfloat16",
        "optimizer": "sgd",
        "in_backward": True,
        "param_groups": 2,
        "loss_chunks": 4,
        "lora": 16,
        "channels_last": True,
        "parallel": None,
        "checkpointing": None,
        "real": None,
    }
    assert {f"--{name.replace('_', '-')}" for name in given} == set(CAPTURE)
    for chosen in (given, {**dict.fromkeys(given), "lora": 1}):
        request = request_of("timm:chain", 2, chosen)
        words = shlex.split(request.options)
        read = parallel.make_context("parallel", [*ASKED, "h100_x8", *words][1:]).params
        assert (
            request_of("timm:chain", 2, {**chosen, **{name: read[name] for name in given if name in read}}) == request
        )
        assert not set(words) & set(TRIED_BY_RANK)


def test_micro_batches(captured: list[Request]) -> None:
    """Each is captured once where all are alike, the command has their number."""
    done = vdnnsim(*ASKED, "h100_x8", "--accumulate", "4", "--layout", "fsdp=8")
    assert [(each.parallel, each.accumulate, each.batch_size) for each in captured] == [("fsdp=8", 1, 2)]
    assert "4 micro-batches of 2 samples for each GPU" in done.stdout
    assert "vdnnsim run --model timm:chain --batch 2 --accumulate 4 --parallel fsdp=8" in done.stdout
    vdnnsim(*ASKED, "h100_x8", "--accumulate", "4", "--gpus", "8,16")
    assert [each.parallel for each in captured[1:3]] == ["fsdp=16", "fsdp=16,sync=last"]
    for wrong in ("0", "513"):
        assert f"--accumulate: found {wrong}, expected an integer from 1 to 512" in refusal(
            *ASKED, "h100_x8", "--accumulate", wrong
        )


def test_several_numbers_of_gpus(captured: list[Request]) -> None:
    """Of data-parallel layouts alone, the most GPUs first."""
    done = vdnnsim(*ASKED, "h100_x8", "--gpus", "8,16")
    assert [each.parallel for each in captured] == ["fsdp=16", "hsdp=2x8", "ddp=16", "fsdp=8", "ddp=8"]
    assert "images/s per GPU on 8 of h100_x8" in done.stdout
    assert {each.name for each in Path("reports/chain-parallel-h100_x8").iterdir()} == {
        *("scaling.csv", "scaling.json", "scaling.md", "scaling.png"),
    }


def test_server_of_a_card(captured: list[Request]) -> None:
    """Of RTX 4090 the smallest server has four; a layout says how many of them; progress says whose rank it is."""
    done = vdnnsim(
        "parallel", "--model", "timm:chain", *ASKED[2:], "rtx_4090", "--layout", "fsdp=8", "--layout", "ddp=8"
    )
    assert "8 GPUs of rtx_4090_x8" in done.stdout
    assert "--hardware rtx_4090_x8" in done.stdout
    assert "a rank of ddp=8" in done.stderr
    assert len(captured) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("rtx_2080ti",), "--hardware: rtx_2080ti has one GPU, expected a profile of several"),
        (("h100_x8", "--gpus", "9"), "--hardware: h100_x8 for 9 GPUs, expected at most 8, or a multiple of 8"),
        (("h100_x8", "--gpus", "1"), "--gpus: found '1', expected a number from 2 on"),
        (("h100_x8", "--gpus", "2,x"), "--gpus: found '2,x', expected a number from 2 on, or several"),
        (("h100_x8", "--gpus", "4,8", "--layout", "fsdp=4"), "--layout: found fsdp=4 with several numbers of GPUs"),
        (("h100_x8", "--gpus", "8", "--layout", "fsdp=4"), "--layout: fsdp=4 is for 4 GPUs, expected 8"),
        (("h100_x8", "--layout", "fsdp=8, tp=2", "--layout", "fsdp=4"), "--layout: fsdp=4 is for 4 GPUs, expected 16"),
        (("rtx_4090", "--gpus", "9"), "--hardware: rtx_4090 for 9 GPUs, expected at most 8"),
        (("h100_x8", "--model", "my.py:net"), "expected one of MODEL and --model MODEL"),
    ],
)
def test_what_the_machine_lacks(captured: list[Request], options: tuple[str, ...], said: str) -> None:
    assert said in refusal(*ASKED, *options)
    assert not captured
