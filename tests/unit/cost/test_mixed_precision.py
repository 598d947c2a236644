"""Kernel costs under mixed precision, by every kind of cost model; by hand.

One image of five channels through conv (30 weights) and fc (6 weights) under autocast to bfloat16: the input, 20 B, is
cast to 10 B; conv and fc write 10 B and 2 B; the logits are cast to 4 B, of which the loss makes 4 B. conv reads its W,
120 B, and makes a copy without biases, 25 elements, 50 B; fc has 24 B and 10 B.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.toy import TOY_SERVER, kernel_table, server_with, toy_chain
from vdnnsim.cost.kernel_table import KernelRow, read_measured_kernels
from vdnnsim.cost.measured import MeasuredCosts
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import MeasuredKernels, Origin, Server
from vdnnsim.units import ElementType, Precision

WIDE, HALF, TF32 = ElementType.FLOAT32, ElementType.BFLOAT16, ElementType.TF32
F, U = Phase.FORWARD, Phase.UPDATE
MIXED = Workload.in_precision(toy_chain(1), 1, Precision.AMP_BFLOAT16, Optimizer.SGD)
NO_WORKSPACES = "a roofline knows no workspaces, so none count"
GAP = "toy states no gpu.peak for bfloat16; the rate of float32 stands in"


def fastest(table: CostTable, workload: Workload, name: str, phase: Phase = F) -> KernelCost:
    (layer,) = [each.index for each in workload.graph.layers if each.name == name]
    return table.fastest(layer, phase)


def roofline(peaks: Mapping[ElementType, float]) -> ServerCosts:
    """A machine of 320 B/s with a launch of 1 s."""
    server = server_with({"launch_overhead_s": 1.0})
    return ServerCosts(replace(server, gpu=replace(server.gpu, flop_per_s=peaks)))


def test_a_roofline_times_each_kernel_in_its_own_type() -> None:
    """At 50 FLOP/s in float32 and 100 in bfloat16; each kernel with 1 s of launch.

    The cast moves 30 B: 30 / 320 s. conv computes 50 FLOPs in 0.5 s and moves 10 + 120 + 2 x 50 + 10 B in 0.75 s, fc 10
    FLOPs in 0.1 s and 10 + 24 + 2 x 10 + 2 B in 0.175 s; the update of fc, in float32, 12 FLOPs in 0.24 s.
    """
    table = roofline({WIDE: 50.0, HALF: 100.0}).table(MIXED)
    assert fastest(table, MIXED, "conv1/cast").seconds == pytest.approx(1 + 30 / 320)
    assert (fastest(table, MIXED, "conv1").seconds, fastest(table, MIXED, "conv1").dram_bytes) == (1.75, 240)
    assert fastest(table, MIXED, "fc").seconds == pytest.approx(1.175)
    assert fastest(table, MIXED, "fc", U).seconds == pytest.approx(1.24)
    assert table.gap == NO_WORKSPACES
    # 50 FLOPs at 50 FLOP/s are 1 s; the table names the gap, after that of any roofline.
    costs = roofline({WIDE: 50.0})
    assert fastest(costs.table(MIXED), MIXED, "conv1").seconds == 2.0
    assert costs.table(MIXED).gap == f"{GAP}; {NO_WORKSPACES}"
    assert costs.table(Workload(toy_chain(1), 1)).gap == NO_WORKSPACES
    other = f"{GAP}, and `--precision amp_fp16` has its own; {NO_WORKSPACES}"
    assert roofline({WIDE: 50.0, ElementType.FLOAT16: 100.0}).table(MIXED).gap == other


def test_products_alone_run_at_the_peak_of_tf32() -> None:
    """CONV has 50 FLOPs at 200 FLOP/s, less than its 20 + 120 + 20 B take; the loss 5 at 1 FLOP/s, in float32."""
    workload = Workload.in_precision(toy_chain(1), 1, Precision.TF32)
    table = roofline({WIDE: 1.0, TF32: 200.0}).table(workload)

    assert fastest(table, workload, "conv1").seconds == 1.5
    assert fastest(table, workload, "loss").seconds == 6.0


def test_the_model_of_maxwell_times_each_kernel_in_its_own_type(toy_server: Server) -> None:
    """At 1 FLOP/s in bfloat16 the 10 FLOPs of fc take 10 s. A cast moves 30 B, the loss 8 B, at half of 1024 B/s.

    A convolution costs what it does where all is bfloat16, workspaces of narrow elements included.
    """
    gpu = replace(toy_server.gpu, flop_per_s={WIDE: 4096.0, HALF: 1.0})
    costs = ServerCosts(replace(toy_server, gpu=gpu))
    narrow = Workload(toy_chain(1), 1, HALF)
    table = costs.table(MIXED)

    assert fastest(table, MIXED, "fc").seconds == 11.0
    assert fastest(table, MIXED, "conv1/cast").seconds == 1 + 30 / 512
    assert fastest(table, MIXED, "loss").seconds == 1 + 8 / 512
    assert table.options(1, F) == costs.table(narrow).options(0, F)
    assert ServerCosts(toy_server).table(MIXED).gap == GAP


FC_WIDE = "fc 1 bias,forward,1,float32,5x1x1,,only,,7.0,0.0,1,0,10,48,measured,"
FC_HALF = "fc 1 bias,forward,1,bfloat16,5x1x1,,only,,3.0,0.0,1,0,10,24,measured,"
LOSS = "softmax_loss,forward,1,float32,1x1x1,,only,,2.0,0.0,1,0,5,8,measured,"


def measured(folder: Path, *lines: str, tf32: bool = False) -> ServerCosts:
    """A machine with a table of kernels and nothing else, that states peaks of float32 and bfloat16."""
    gpu, kernels = replace(TOY_SERVER.gpu, flop_per_s={WIDE: 50.0, HALF: 100.0}), kernel_table(folder, lines, tf32=tf32)
    return ServerCosts(replace(TOY_SERVER, gpu=gpu, kernels=kernels, cost_model_kind="table", cost_model={}))


def test_a_table_times_each_kernel_in_its_own_type(tmp_path: Path) -> None:
    """FC was measured in bfloat16, too, and the loss in float32; the rest is predicted."""
    workload = replace(MIXED, mode=Mode.INFERENCE, optimizer=Optimizer.NONE)
    table = measured(tmp_path, FC_WIDE, FC_HALF, LOSS).table(workload)

    assert (fastest(table, workload, "fc").seconds, fastest(table, workload, "fc").origin) == (3.0, Origin.MEASURED)
    assert (fastest(table, workload, "loss").seconds, fastest(table, workload, "loss").origin) == (2.0, Origin.MEASURED)
    assert fastest(table, workload, "conv1").origin is Origin.FITTED
    assert table.gap == ""


def test_kernels_of_float32_stand_in_where_a_table_has_no_narrow_ones(tmp_path: Path) -> None:
    """Their times are predicted from rows of float32, and the gap is named; pure bfloat16 is refused."""
    costs = measured(tmp_path, FC_WIDE, LOSS)
    workload = replace(MIXED, mode=Mode.INFERENCE, optimizer=Optimizer.NONE)
    table = costs.table(workload)

    assert table.gap == "toy.kernels.csv times no kernel in bfloat16; those of float32 stand in"
    assert fastest(table, workload, "fc").origin is Origin.FITTED
    assert fastest(table, workload, "loss").seconds == 2.0
    with pytest.raises(ProfileError, match=r"toy\.kernels\.csv: times no kernel in bfloat16, only in float32$"):
        costs.table(Workload(toy_chain(1), 1, HALF))


def test_a_table_is_read_and_fitted_once_for_all_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rows of float32 stand in: a search for the largest batch asks for many."""
    read: list[object] = []

    def reading(kernels: MeasuredKernels) -> tuple[KernelRow, ...]:
        read.append(kernels)
        return read_measured_kernels(kernels)

    monkeypatch.setattr("vdnnsim.cost.model.read_measured_kernels", reading)
    costs = measured(tmp_path, FC_WIDE, LOSS)
    costs.table(replace(MIXED, batch_size=1))
    reads = len(read)
    for batch_size in range(2, 12):
        costs.table(replace(MIXED, batch_size=batch_size))
    assert len(read) == reads > 0


def test_a_table_that_was_measured_in_tf32_times_tf32(tmp_path: Path) -> None:
    """Though no peak of it is stated; one that was not refuses."""
    workload = Workload.in_precision(toy_chain(1), 1, Precision.TF32, mode=Mode.INFERENCE)
    costs = measured(tmp_path, FC_WIDE, LOSS, tf32=True)

    assert isinstance(costs.of_type(TF32), MeasuredCosts)
    assert fastest(costs.table(workload), workload, "fc").seconds == 7.0
    with pytest.raises(ProfileError, match=r"toy\.kernels\.csv: times no kernel in tf32, only in float32$"):
        measured(tmp_path, FC_WIDE, LOSS).table(workload)
