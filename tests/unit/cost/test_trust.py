"""Errors that are expected of simulated steps and peaks."""

import msgspec
import pytest

from tests.captured_ranks import sharded
from tests.captured_steps import chain
from tests.command_line import ROOT, csv_rows
from tests.machines import shipped_profile
from vdnnsim.cost.trust import PEAKS_TOO_LOW, Basis, Trust, certain_bytes, trust_in, waits
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.units import Precision


def test_of_twenty_measured_peaks_nineteen_are_within_the_stated_error() -> None:
    """109 of 114 rows that nothing was fitted to; within one point less there are fewer."""
    rows = [
        each
        for each in csv_rows(ROOT / "reports" / "public2026" / "peak_memory.csv")
        if each["fitted"] == "false" and not each["left_out"]
    ]
    ratios = [float(each["measured_bytes"]) / float(each["simulated_bytes"]) for each in rows]
    assert len(ratios) == 114
    within = [
        sum(each <= 1 + error for each in ratios) / len(ratios) for error in (PEAKS_TOO_LOW, PEAKS_TOO_LOW - 0.01)
    ]
    assert within[0] >= 0.95 > within[1]
    assert certain_bytes(1050) == 1000


@pytest.mark.parametrize(
    ("network", "card", "precision", "execution", "is_known"),
    [
        # Rows of timm are in float16.
        ("alexnet", "rtx_3090", Precision.AMP_BFLOAT16, "eager", True),
        ("alexnet", "rtx_3090", Precision.AMP_BFLOAT16, "compiled", False),
        ("alexnet", "rtx_3090", Precision.FLOAT32, "eager", False),
        ("alexnet", "rtx_a6000", Precision.AMP_FLOAT16, "eager", False),
        # Of one with the same chip.
        ("alexnet", "rtx_3090_x8", Precision.AMP_FLOAT16, "eager", True),
        ("vit_b_16", "h100_sxm", Precision.AMP_BFLOAT16, "eager", True),
        ("vit_b_16", "h100_sxm", Precision.AMP_BFLOAT16, "compiled", False),
        ("vit_b_16", "rtx_3090", Precision.AMP_BFLOAT16, "eager", False),
        ("vit_b_16", "h100_sxm", Precision.AMP_BFLOAT16, "cuda_graphs", False),
        ("lstm_rnn", "h100_sxm", Precision.AMP_BFLOAT16, "eager", False),
    ],
)
def test_the_expected_error_is_that_of_steps_of_the_same_kind(
    network: str,
    card: str,
    precision: Precision,
    execution: str,
    is_known: bool,  # noqa: FBT001 - drawn
) -> None:
    """Of the same card, precision, kind of network and execution; of others it is not known, as of fusion by rule."""
    workload = Workload.in_precision(build_network(network), 8, precision, Optimizer.SGD)
    profile = shipped_profile(card)
    found = trust_in(profile, workload, {Origin.FITTED: 1.0}, execution, waits=False)
    assert (found.error is not None, found.rows > 0) == (is_known, is_known)
    assert trust_in(profile, workload, {Origin.FITTED: 1.0}, execution, waits=True) == Trust(Basis.FITTED)


def known(step: CapturedStep, execution: str) -> bool:
    workload = CapturedWorkload.of(msgspec.structs.replace(step, precision=Precision.AMP_BFLOAT16))
    return (
        trust_in(shipped_profile("h100_sxm"), workload, {Origin.FITTED: 1.0}, execution, waits=False).error is not None
    )


def test_no_step_of_a_rank_was_checked() -> None:
    """Steps of one GPU had no collective."""
    step = chain(4)
    collective = next(each.collective for each in sharded().operations if each.collective)
    first = msgspec.structs.replace(step.operations[0], collective=collective)
    assert known(step, "eager")
    assert not known(msgspec.structs.replace(step, operations=(first, *step.operations[1:])), "eager")


def test_fusion_by_rule_is_no_torch_compile() -> None:
    """Rows of an H100 are of transformers that were captured as `torch.compile` makes them."""
    step = chain(4)
    attention = msgspec.structs.replace(step.operations[0], name="aten._efficient_attention", work=None)
    no_convolution = [msgspec.structs.replace(each, work=None, flop={}) for each in step.operations[1:]]
    step = msgspec.structs.replace(step, operations=(attention, *no_convolution))
    found = [known(msgspec.structs.replace(step, compiled=each), "compiled") for each in (False, True)]
    assert found == [False, True]


def test_a_gpu_that_idles_for_more_than_a_tenth_waits() -> None:
    assert [waits(1.0, each) for each in (1.09, 1.11)] == [False, True]


@pytest.mark.parametrize(
    ("trust", "resting", "expected"),
    [
        (Trust(Basis.FITTED, 0.874, 0.09, 12), "87 % fitted", "±9 %"),
        (Trust(Basis.CARRIED_OVER, 1.0, 0.25, 8), "carried over", "±25 %"),
        (Trust(Basis.DATASHEET), "datasheet", "1.1 to 3 times as long"),
        (Trust(Basis.FITTED, error=0.12, twin="a100_40gb"), "fitted", "±12 %, a100_40gb"),
        (Trust(Basis.MEASURED), "measured", "not known"),
    ],
)
def test_trust_in_a_machine_in_words(trust: Trust, resting: str, expected: str) -> None:
    assert (trust.resting, trust.expected) == (resting, expected)
