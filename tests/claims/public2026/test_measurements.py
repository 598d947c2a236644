"""The published rows: which are here, and which a parameter of their machine was fitted on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.claims.public2026.test_scoreboard import BUILT
from vdnnsim.claims.public2026 import replays
from vdnnsim.claims.public2026.fitted import FittedRows
from vdnnsim.claims.public2026.measurements import (
    BATCHES,
    ONE_PEAK_IN,
    ONE_TIME_IN,
    PLAIN_TRANSFORMERS,
    SERIES,
    AnyRow,
    Estimates,
    OperatorTime,
    PeakMemory,
    StepTime,
    asked_batches,
    number_of,
    operator_times,
    peak_memory,
    step_times,
)
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision

_NAMED_ALIKE = ("timm:inception_v3", "timm:vit_base_patch16_224")
"""Networks that vdnnsim builds as torchvision has them, whose rows of timm are captured."""


@pytest.mark.parametrize(("rows", "one_in", "rest"), [(step_times(), ONE_TIME_IN, 0), (peak_memory(), ONE_PEAK_IN, 1)])
def test_networks_of_timm_are_those_built_here_and_drawn_by_their_names(
    rows: Sequence[StepTime | PeakMemory], one_in: int, rest: int
) -> None:
    """Of peaks those of odd numbers, for a context was fitted on even ones; more of plain vision transformers."""
    networks = {row.setup.network for row in rows}
    drawn = {name for name in networks if number_of(name) % one_in == rest}
    drawn |= {name for name in networks if name.startswith(PLAIN_TRANSFORMERS) and not number_of(name) % 4}
    assert {name for name in networks if name.startswith("timm:")} - drawn <= {*replays.BUILT, *_NAMED_ALIKE}
    for name in set(replays.BUILT.values()):
        build_network(name)


def test_every_row_is_of_a_known_series_and_every_series_has_rows() -> None:
    rows: tuple[AnyRow, ...] = (*step_times(), *operator_times(), *peak_memory())
    assert {row.series for row in rows} == set(SERIES)
    assert all(row.measured > 0 for row in rows)
    # 512 is the first; before 256 comes 384, at which the network is replayed too.
    sought = [row for row in step_times() if SERIES[row.series].searches_batch]
    by_batch = {row.batch_size: row for row in sought}
    assert by_batch[512].next_batch is None
    assert by_batch[256].next_batch == 384
    assert asked_batches([by_batch[256]]) == {by_batch[256].setup: (256, 384)}
    assert set(by_batch) <= set(BATCHES)


CARD = "card"
EVEN, ODD = "timm:resnet10t", "timm:convnext_tiny"
_PROFILE = """
gpu:
  name: Card
  context_eager: {value: 1 GiB, origin: fitted, source: "rows of github.com/itu-rad/GPUMemNet"}
"""
_TABLE = """\
role,group,network,origin
fit,timm training,resnet18 512,huggingface/pytorch-image-models aa4b5850 results
held_out,timm training,resnet34 512,huggingface/pytorch-image-models aa4b5850 results
fit,a trace,,sarchlab/triosim 3fb3c060 sample_trace
fit,another trace,,pytorch/kineto 94979607^ tb_plugin
"""
_HOSTS = """\
host,network,mode,element_type
card,resnet18,training,float16
card,resnet34,training,float32
"""


@pytest.fixture
def fitted(tmp_path: Path) -> FittedRows:
    """One profile, whose host, context and kernels were fitted to rows of other places."""
    profile = tmp_path / "card.yaml"
    profile.write_text(_PROFILE)
    profile.with_suffix(".fit.csv").write_text(_TABLE)
    (tmp_path / "hosts.fit.csv").write_text(_HOSTS)
    return FittedRows.of({CARD: profile})


def step(series: str, network: str, batch_size: int, precision: Precision = Precision.AMP_FLOAT16) -> StepTime:
    return StepTime(series, CARD, replace(BUILT, network=network, precision=precision), batch_size, 1.0, None)


def test_a_step_that_kernels_were_fitted_to(fitted: FittedRows) -> None:
    """At its batch; not one that was held out, nor that of another card."""
    assert fitted(step("timm-train-nhwc", "timm:resnet18", 512))
    assert not fitted(step("timm-train-nhwc", "timm:resnet18", 256))
    assert not fitted(step("timm-train-nhwc", "timm:resnet34", 512))
    assert not fitted(replace(step("timm-train-nhwc", "timm:resnet18", 512), hardware="another"))


def test_steps_that_a_host_was_fitted_to(fitted: FittedRows) -> None:
    """Of these networks, in these types, of which TF32 is stored as float32; no inference was among them."""
    found = [
        fitted(step("torchvision-12", f"torchvision:{network}", 12, precision))
        for network in ("resnet18", "resnet34", "vgg16")
        for precision in (Precision.FLOAT16, Precision.TF32)
    ]
    inference = step("torchvision-12", "torchvision:resnet18", 12, Precision.FLOAT16)
    assert found == [True, False, False, True, False, False]
    assert not fitted(replace(inference, setup=replace(inference.setup, mode=Mode.INFERENCE)))


def test_a_trace_that_kernels_were_fitted_to(fitted: FittedRows) -> None:
    """The other is a later trace of the same repository."""
    rows = {
        series: OperatorTime(series, CARD, BUILT, 32, LayerKind.CONV, is_forward=True, measured=1.0)
        for series in ("triosim-h100", "kineto-v100")
    }
    assert fitted(rows["triosim-h100"])
    assert not fitted(rows["kineto-v100"])


@pytest.mark.parametrize(("network", "batch_size", "expected"), [(EVEN, 8, True), (EVEN, 16, False), (ODD, 8, False)])
def test_peaks_that_a_context_was_fitted_to(
    fitted: FittedRows, network: str, batch_size: int, *, expected: bool
) -> None:
    """Those of networks with even numbers, at two batches."""
    assert (number_of(network) % 2 == 0) is (network == EVEN)
    assert fitted(PeakMemory(replace(BUILT, network=network), batch_size, 1.0, Estimates(), hardware=CARD)) is expected


def test_without_tables_nothing_was_fitted(tmp_path: Path) -> None:
    profile = tmp_path / "card.yaml"
    profile.write_text(_PROFILE)
    assert not FittedRows.of({CARD: profile})(step("timm-train-nhwc", "timm:resnet18", 512))
