"""The scoreboard on rows made by hand, of a network that is built and of captured steps."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from reports.public2026.report import paper_report
from tests.captured_steps import chain
from tests.machines import shipped_server
from tests.unit.plans.test_workspaces import BOTH, with_convolutions, work
from vdnnsim.claims.claim import Claim, ClaimsFile, Verdict
from vdnnsim.claims.public2026.measurements import (
    COMPILED,
    MEMORY,
    MEMORY_HARDWARE,
    SERIES,
    AnyRow,
    Estimates,
    OperatorTime,
    PeakMemory,
    Setup,
    StepTime,
    asked_batches,
)
from vdnnsim.claims.public2026.replays import Capture, PublicRuns
from vdnnsim.claims.public2026.scoreboard import Errors, Scoreboard, check_claim
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.units import MIB, Precision

CARD = "titan_xp"
BUILT = Setup("torchvision:resnet18", 224, Mode.TRAINING, Precision.FLOAT32, "none", channels_last=False)
FOREIGN = Setup("timm:chain", None, Mode.TRAINING, Precision.FLOAT32, "momentum", channels_last=False)


def time_row(setup: Setup, batch_size: int, seconds: float, series: str = "torchvision-12") -> StepTime:
    return StepTime(series, CARD, setup, batch_size, seconds, None)


def peak_row(setup: Setup, batch_size: int, nbytes: float) -> PeakMemory:
    return PeakMemory(setup, batch_size, nbytes, Estimates(faketensor=nbytes / 2), hardware=CARD)


def board_of(
    *rows: AnyRow, capture: Capture | None = None, is_fitted: Callable[[AnyRow], bool] = lambda _: False
) -> Scoreboard:
    machines = {CARD: shipped_server(CARD)}
    return Scoreboard(
        PublicRuns(machines, capture, asked_batches(rows)),
        tuple(each for each in rows if isinstance(each, StepTime)),
        tuple(each for each in rows if isinstance(each, OperatorTime)),
        tuple(each for each in rows if isinstance(each, PeakMemory)),
        is_fitted,
    )


def claim(metric: str, *, series: str = "torchvision-12", at_most: float = 0.12, reading: str = "") -> Claim:
    return Claim(id="c", where="", metric=metric, networks=series, policy="pytorch", reading=reading, at_most=at_most)


def chains(_: Setup, batch_size: int) -> CapturedStep:
    return chain(batch_size)


def test_errors_together() -> None:
    """Of +10, -10 and -3 %: 7.67 % off in the mean, 10 % in the median, bias -1 %, two thirds more than 2 % too low."""
    errors = Errors((0.1, -0.1, -0.03))
    assert errors.mean_absolute == pytest.approx(0.23 / 3)
    assert errors.median_absolute == pytest.approx(0.1)
    assert errors.mean == pytest.approx(-0.01)
    assert errors.share_under == pytest.approx(2 / 3)
    assert abs(errors.worst) == pytest.approx(0.1)
    # Measured is twice the replay.
    (held,) = board_of(time_row(BUILT, 2, 1.0)).step_times
    assert held.simulated is not None
    (again,) = board_of(time_row(BUILT, 2, 2 * held.simulated)).step_times
    assert again.error == pytest.approx(-0.5)


def test_a_row_that_a_parameter_was_fitted_on_is_marked_and_counts_nowhere() -> None:
    """Of two rows the fitted one would be off by more."""
    rows = time_row(BUILT, 2, 1e-3), time_row(BUILT, 4, 1e6)
    board = board_of(*rows, is_fitted=lambda row: row.batch_size == 4)
    found = check_claim(claim("step_time_bias", at_most=1e9), board, CARD)
    assert [each.counts for each in board.step_times] == [True, False]
    assert "1 of 2 rows" in found.metric
    assert found.verdict is Verdict.REPRODUCED
    assert float(found.simulated.rstrip("%")) > 0


def test_without_capture_only_built_networks_are_replayed() -> None:
    """What was recorded for all networks is not compared with some of them."""
    board = board_of(time_row(BUILT, 2, 1.0), time_row(FOREIGN, 2, 1.0))
    built, foreign = board.step_times
    found = check_claim(claim("step_time_error"), board, CARD)
    assert built.counts
    assert (foreign.counts, foreign.left_out) == (False, "takes PyTorch and the library of the network")
    assert found.verdict is found.recorded is Verdict.NOT_REPRODUCED


def test_a_claim_without_rows_keeps_its_record() -> None:
    found = check_claim(claim("step_time_error"), board_of(time_row(FOREIGN, 2, 1.0)), CARD)
    other = check_claim(claim("step_time_error", series="none"), board_of(), CARD)
    assert found.simulated == other.simulated == "no row"
    assert found.verdict is found.recorded is Verdict.NOT_REPRODUCED
    assert found.reason == "no row counts: takes PyTorch and the library of the network"
    assert other.reason == "no row counts: there is none of this card"
    # A reading chooses by mode and precision.
    board = board_of(time_row(BUILT, 2, 1.0), time_row(replace(BUILT, mode=Mode.INFERENCE), 2, 1.0))
    found = check_claim(claim("step_time_error", reading="inference float32"), board, CARD)
    assert found.metric.endswith("inference float32; 1 of 1 rows")


def test_a_peak_is_that_of_a_script_that_searches_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 640 images 10 MiB each are X and dY, W 144 KiB, and dW of 21 parts on 108 multiprocessors.

    A pool that is not emptied keeps 22 MiB of the data gradient beside 24 of the weight gradient; a search in between
    frees these 22, and asks for 32 itself.
    """
    step = with_convolutions(work(batch_size=640), work(*BOTH, batch_size=640))
    machines = {MEMORY_HARDWARE: shipped_server(MEMORY_HARDWARE)}
    row = PeakMemory(FOREIGN, 640, 1.0, Estimates(faketensor=1.0))

    def simulated() -> int:
        return PublicRuns(machines, lambda *_: step, asked_batches([row])).peak_bytes(row)

    searching = simulated()
    without = {MEMORY: replace(SERIES[MEMORY], cudnn_benchmark=False)}
    monkeypatch.setattr("vdnnsim.claims.public2026.replays.SERIES", without)

    assert searching < simulated() < searching + (46 - 32) * MIB


def test_batches_between_the_least_and_the_greatest_follow_from_these() -> None:
    """Three rows, two captures, though each row is asked for twice; a network that fails is asked once."""
    asked: list[int] = []

    def capture(setup: Setup, batch_size: int) -> CapturedStep:
        asked.append(batch_size)
        return chains(setup, batch_size)

    rows = [time_row(FOREIGN, batch_size, 1.0) for batch_size in (2, 3, 4)]
    assert all(each.counts for each in board_of(*rows, capture=capture).step_times)
    assert sorted(asked) == [2, 4]


def test_a_batch_that_lies_on_no_line_is_captured_itself() -> None:
    """At a batch of four an operator has another name."""

    def capture(_: Setup, batch_size: int) -> CapturedStep:
        step = chain(batch_size)
        name = "aten.another.default" if batch_size == 4 else step.operations[-1].name
        last = msgspec.structs.replace(step.operations[-1], name=name)
        return msgspec.structs.replace(step, operations=(*step.operations[:-1], last))

    rows = [time_row(FOREIGN, batch_size, 1.0) for batch_size in (2, 3, 4)]
    assert all(each.counts for each in board_of(*rows, capture=capture).step_times)


def test_rows_are_left_out_with_the_reason() -> None:
    """No capture, asked for once; and a network of 7 million parameters in the source, of a handful when captured."""

    def capture(_: Setup, batch_size: int) -> CapturedStep:
        raise CaptureError(f"no batch of {batch_size}")

    rows = [time_row(FOREIGN, batch_size, 1.0) for batch_size in (2, 4)]
    assert {each.left_out for each in board_of(*rows, capture=capture).step_times} == {"no batch of 2"}
    (held,) = board_of(replace(rows[0], parameters=7e6), capture=chains).step_times
    assert held.left_out == "has 0.00 million parameters today, 7.00 when measured"


def test_fused_attention_is_left_out_where_the_measured_framework_had_none() -> None:
    def capture(_: Setup, batch_size: int) -> CapturedStep:
        step = chain(batch_size)
        fused = msgspec.structs.replace(step.operations[0], name="aten._scaled_dot_product_flash_attention.default")
        return msgspec.structs.replace(step, operations=(fused, *step.operations[1:]))

    rows = [replace(time_row(FOREIGN, 2, 1.0), series=series) for series in ("timm-train-nchw", "timm-infer-pt24-nchw")]

    old, new = board_of(*rows, capture=capture).step_times

    assert old.left_out.startswith("has fused attention today")
    assert new.counts


def test_micro_batches_add_up_to_the_samples_of_an_update() -> None:
    """Of 512 sequences: one of 512 is an update, two of 256 take longer than one of 256."""
    rows = [time_row(FOREIGN, 256, 1.0, series) for series in ("timm-infer-pt24-nchw", COMPILED)]
    one, two = (each.simulated for each in board_of(*rows, capture=chains).step_times)
    (whole,) = board_of(replace(rows[1], batch_size=512), capture=chains).step_times
    assert one is not None
    assert two is not None
    assert two > 1.5 * one
    assert whole.counts


@pytest.mark.parametrize(("batch_size", "where"), [(2, "larger"), (64, "in its bracket"), (512, "smaller")])
def test_where_the_largest_batch_lies(batch_size: int, where: str) -> None:
    """ResNet-152 holds 170 MiB an image: in 12 GiB 3 fit, and 64, which take 10.6 GiB; 96 take 16 GiB."""
    setup = replace(BUILT, network="torchvision:resnet152")
    (held,) = board_of(time_row(setup, batch_size, 1.0, "timm-train-nchw")).largest_batches
    assert str(held.simulated) == where


def test_kinds_of_operators_add_up_to_the_kernels_of_an_iteration() -> None:
    """Convolutions of ResNet-50 take longer backward than forward, and a sum over its only LOSS layer is short."""
    setup = replace(BUILT, network="torchvision:resnet50", optimizer="momentum")
    rows = [
        OperatorTime("kineto-v100", CARD, setup, 2, kind, is_forward=is_forward, measured=1.0)
        for kind, is_forward in ((LayerKind.CONV, True), (LayerKind.CONV, False), (LayerKind.LOSS, True))
    ]

    board = board_of(*rows)
    forward, backward, loss = (each.simulated for each in board.operator_times)
    found = check_claim(claim("operator_error", series="kineto-v100", at_most=1.0), board, CARD)

    assert (backward or 0) > (forward or 0) > (loss or 0) > 0
    assert found.verdict is Verdict.REPRODUCED


@pytest.mark.usefixtures("no_labels_overlap")
def test_the_report_has_every_row_and_a_picture_of_what_counts() -> None:
    """A table for each kind of row; FakeTensor, at half of the measurement, is 50 % off."""
    rows = (
        time_row(BUILT, 2, 1e-2),
        time_row(BUILT, 2, 1e-2, "timm-train-nchw"),
        time_row(FOREIGN, 2, 1.0),
        OperatorTime("kineto-v100", CARD, BUILT, 2, LayerKind.CONV, is_forward=True, measured=1e-3),
        peak_row(BUILT, 2, 1e9),
    )
    board = board_of(*rows)
    claims = [check_claim(claim(metric), board, CARD) for metric in ("step_time_error", "memory_under")]

    files = paper_report(_file(), claims, board, [])

    assert set(files) == {
        *("README.md", "claims.csv", "step_times.csv", "operator_times.csv", "largest_batches.csv", "peak_memory.csv"),
        *("gpt2_memory.csv", "estimators.csv"),
        *("step_times.png", "operators.png", "peak_memory.png", "run.json"),
    }
    assert files["step_times.csv"].count(b"\n") == 4
    page = files["README.md"].decode()
    assert "FakeTensor, as published | 1 | 50.0 %" in page
    assert "timm:chain: takes PyTorch and the library of the network" in page


def _file() -> ClaimsFile:
    return ClaimsFile(schema_version=1, paper="public2026", title="", hardware=CARD, claims=())
