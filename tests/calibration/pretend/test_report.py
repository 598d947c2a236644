"""Sentences and table rows of made-up outcomes."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from calibration.pretend.card import Card, OperatorRates, card_of
from calibration.pretend.report import findings, holder_rows, memory_rows, refusal, snapshot_names, step_rows
from calibration.pretend.session import Gpu, Holder, Most, Outcome, OutOfMemory, Peak, Place, Process
from tests.machines import shipped_server
from vdnnsim.hardware.server import Origin
from vdnnsim.units import GIB, MIB

RATES = OperatorRates({}, {}, 1e12, 1e-6, Origin.DATASHEET)
PLACE = Place("forward", "Net.blocks.0.mlp", f"{Path.cwd()}/train.py:7")
HOLDERS = (
    Holder("forward", "Net.blocks.0.mlp", f"{Path.cwd()}/train.py:7", 300 * MIB),
    Holder("optimizer", "", f"{Path.cwd()}/train.py:9", 200 * MIB),
    Holder("forward", "Net.blocks.1.mlp", f"{Path.cwd()}/train.py:7", 300 * MIB),
)
PEAK = Peak(
    1000 * MIB, PLACE, {"forward": 600 * MIB, "optimizer": 200 * MIB}, HOLDERS, 200 * MIB, history_is_whole=True
)
GPU = Gpu(0, 1000 * MIB, 1200 * MIB, 1700 * MIB, PEAK)
PROCESS = Process(
    process=1,
    rank=0,
    torch="2.14.1",
    gpus=(GPU,),
    steps=((Most(900 * MIB, 1200 * MIB, 1700 * MIB),), (Most(1000 * MIB, 1200 * MIB, 1700 * MIB),)),
    steady_from_step=1,
    step_s=0.0125,
    operator_s={"mm": 0.003, "add": 0.001},
    out_of_memory=(),
    zeros_read=(("/projects/train.py:12", 3), ("", 1)),
    refused=(),
    ended="steady",
    error="",
)
REFUSED = OutOfMemory(0, 2 * GIB, 8 * GIB, 1 * GIB, 5 * GIB, 6 * GIB, PLACE, 1)


@pytest.fixture(scope="module")
def card() -> Card:
    return card_of(shipped_server("h100_sxm"))


def matches(sentences: list[str], *patterns: str) -> None:
    assert len(sentences) == len(patterns)
    for sentence, pattern in zip(sentences, patterns, strict=True):
        assert re.search(pattern, sentence)


def outcome(*processes: Process, returncode: int = 0) -> Outcome:
    return Outcome(returncode, processes, tuple(b"" for _ in processes))


def changed(**values: object) -> Process:
    return msgspec.structs.replace(PROCESS, **values)


def test_memory_as_pytorch_and_the_driver_see_it_by_rank() -> None:
    """1,700 MiB of 8 GiB are 20.8 %."""
    assert memory_rows(outcome(PROCESS), 8 * GIB) == [("0", "1000 MiB", "1.17 GiB", "1.66 GiB", "21%")]
    rows = memory_rows(outcome(PROCESS, changed(rank=1)), 8 * GIB)
    assert [row[0] for row in rows] == ["0 of rank 0", "0 of rank 1"]
    assert snapshot_names((PROCESS, PROCESS)) == ("snapshot_0.pickle", "snapshot_1.pickle")
    assert snapshot_names((PROCESS,)) == ("snapshot.pickle",)


def test_modules_that_differ_in_a_number_hold_memory_together() -> None:
    """Two blocks of 300 of 1,000 MiB; 200 have no place, and make up the rest."""
    assert holder_rows(GPU) == [
        ("600 MiB", "60%", "forward", "Net.blocks.*.mlp", "train.py:7"),
        ("200 MiB", "20%", "optimizer", "", "train.py:9"),
        ("200 MiB", "20%", "all else", "", ""),
    ]
    assert holder_rows(msgspec.structs.replace(GPU, peak=None)) == []


def test_each_step_is_a_row_of_each_gpu_that_was_used() -> None:
    unused = (*PROCESS.steps[0], Most(0, 0, 0))
    assert step_rows(outcome(changed(steps=(unused,)))) == [(0, 1, 0, 900 * MIB, 1200 * MIB, 1700 * MIB)]


def test_findings_in_sentences(card: Card) -> None:
    """Of 4 ms of operators 3 are of mm."""
    matches(
        findings(outcome(PROCESS), replace(card, context_assumed=False), RATES),
        r"forward of Net\.blocks\.0\.mlp \(train\.py:7\).* 600 MiB in forward, 200 MiB in optimizer$",
        "did not grow after step 1 of 2",
        "predicted: 12.5 ms a step, by the peaks of its data sheet.* mm 75%, add 25%$",
        r"4 times,.*\(/projects/train\.py:12\)$",
    )


@pytest.mark.parametrize(
    ("process", "sentence"),
    [
        (changed(steps=()), "no optimizer of torch.optim"),
        (changed(steady_from_step=None), "reserved memory may still grow: 2 steps"),
        (changed(ended="time"), "(--minutes)"),
        (changed(ended="interrupted"), "interrupted"),
        (changed(ended="error", error="ValueError: mine"), "ValueError: mine"),
        (changed(refused=("nonzero gives", "nonzero gives")), "nonzero gives"),
    ],
)
def test_each_hindrance_is_one_sentence(card: Card, process: Process, sentence: str) -> None:
    assert sum(sentence in each for each in findings(outcome(process), card, RATES)) == 1


def test_an_assumed_context_and_a_command_without_cuda(card: Card) -> None:
    sentences = findings(outcome(PROCESS), replace(card, context_assumed=True, context_bytes=500 * MIB), RATES)
    assert "assumed to take 500 MiB" in sentences[-1]
    (only,) = findings(outcome(), card, RATES)
    assert only.startswith("no process of the command used a GPU")


def test_out_of_memory_report_names_the_smallest_card_that_fits(card: Card) -> None:
    """9 GiB reserved and 0.5 of context fit into 9.5 GiB exactly, not into a byte less; 12 GiB are more than needed.

    The driver showed 9.5 GiB on a card of 8: 1.5 GiB more than there are.
    """
    context = 512 * MIB
    cards = {
        name: replace(card, memory_bytes=memory, context_bytes=context)
        for name, memory in (("large", 12 * GIB), ("exact", 19 * GIB // 2), ("small", 19 * GIB // 2 - 1))
    }
    first = outcome(changed(ended="out of memory", out_of_memory=(REFUSED,)), returncode=1)
    most = msgspec.structs.replace(GPU, allocated_bytes=8 * GIB, reserved_bytes=9 * GIB, driver_bytes=19 * GIB // 2)
    matches(
        refusal(first, outcome(changed(gpus=(most,))), cards),
        r"step 2, in forward of Net\.blocks\.0\.mlp \(train\.py:7\).* 2\.00 GiB .* 1\.00 GiB .*5\.00 GiB .* 1\.00 GiB",
        r"8\.00 GiB allocated, 9\.00 GiB reserved, 9\.50 GiB .* 1\.50 GiB more",
        r"exact \(9\.50 GiB\) is the smallest",
        "a smaller batch, or with checkpointing",
    )
    assert "it fits on no known card" in refusal(first, outcome(changed(gpus=(most,))), {})


def test_other_failure_with_unlimited_memory_is_reported() -> None:
    first = outcome(changed(ended="out of memory", out_of_memory=(REFUSED,)), returncode=1)
    again = outcome(changed(steps=(), ended="error", error="ValueError: mine"))
    assert "ValueError: mine" in refusal(first, again, {})[1]
    assert len(refusal(first, None, {})) == 1
    # The program went on, as where cuDNN's workspace does not fit and PyTorch takes another plan.
    assert refusal(outcome(changed(out_of_memory=(REFUSED,))), None, {}) == []
