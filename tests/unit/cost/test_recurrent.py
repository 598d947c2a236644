"""Costs of recurrent layers on a machine of 50 FLOP/s, 320 B/s and a launch of 1 s, in float32.

Sequences of `T` steps in a batch of 2, 3 features, cells of an LSTM: 4 gates. A product costs the longer of its FLOPs
and its bytes, beside the launch.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from tests.captured_steps import chain
from tests.machines import shipped_server
from tests.toy import kernel_table, server_with
from vdnnsim.cost.efficiency import EfficiencyCosts
from vdnnsim.cost.kernel_table import KernelRow, KernelShape
from vdnnsim.cost.measured import MeasuredCosts
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.recurrent import recurrent_cost, steps_abreast
from vdnnsim.cost.roofline import RooflineCosts
from vdnnsim.cost.roofline_fit import Roofline
from vdnnsim.cost.table import RECURRENT, KernelWork
from vdnnsim.dnn.captured_sizes import Quantity, interpolated
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.kernel_work import RecurrentWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.sequences import Linear, Lstm
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.units import MIB, ElementType, Precision

F32, BF16 = ElementType.FLOAT32, ElementType.BFLOAT16
SERVER = server_with({"launch_overhead_s": 1.0})
LSTM = RecurrentWork(steps=5, rows=10, input_size=3, hidden_size=1, layers=1, gates=4)


def seconds(work: RecurrentWork) -> float:
    return recurrent_cost(RooflineCosts(SERVER), F32, work).seconds


def product_s(rows: int, columns: int, depth: int, count: int = 1) -> float:
    """Return the longer of FLOPs and bytes."""
    elements = rows * depth + depth * columns + rows * columns
    return max(2 * count * rows * columns * depth / 50, 4 * count * elements / 320)


def test_each_step_waits_for_the_one_before_it() -> None:
    """Two kernels a step, and one for the input of all: 11 launches.

    A step multiplies 2 x 1 by 1 x 4: 16 FLOPs, 0.32 s, and its cells read and write 5 numbers each, 80 B or 10 FLOPs.
    The input is 10 x 3 by 3 x 4.
    """
    assert product_s(2, 4, 1) == 0.32
    assert seconds(LSTM) == pytest.approx(11 + 5 * (0.32 + 80 / 320) + product_s(10, 4, 3))


def test_layers_run_beside_each_other() -> None:
    """Of two layers 4 steps in the middle have both, the first and the last one each: 6 of two kernels, two inputs."""
    alone, both = product_s(2, 4, 1) + 80 / 320, product_s(2, 4, 1, count=2) + 160 / 320
    inputs = product_s(10, 4, 3) + product_s(10, 4, 1)
    assert seconds(changed(LSTM, layers=2)) == pytest.approx(14 + 2 * alone + 4 * both + inputs)


def test_a_layer_above_two_directions_waits_for_both() -> None:
    """10 steps of both directions in two layers, whose inputs have 3 features and 2, each for 2 x 4 gates."""
    both = product_s(2, 4, 1, count=2) + 160 / 320
    inputs = product_s(10, 8, 3) + product_s(10, 8, 2)
    assert seconds(changed(LSTM, layers=2, directions=2)) == pytest.approx(22 + 10 * both + inputs)


def test_a_projected_layer_has_another_product_in_each_step() -> None:
    """Of 3 cells projected to 1: 2 x 1 by 1 x 12, cells of 2 x 3 x 5 numbers, 2 x 3 by 3 x 1."""
    step = product_s(2, 12, 1) + 240 / 320 + product_s(2, 1, 3)
    found = seconds(changed(LSTM, hidden_size=3, projected=1))
    assert found == pytest.approx(16 + 5 * step + product_s(10, 12, 3))


def test_backward_has_the_chain_and_then_large_products() -> None:
    """A step multiplies 2 x 4 by 4 x 1; dX is 10 x 4 by 4 x 3; dW 4 x 10 by 10 x 3, and of the state by 10 x 1."""
    chained = 5 * (product_s(2, 1, 4) + 80 / 320)
    backward = changed(LSTM, is_backward=True)
    assert seconds(backward) == pytest.approx(11 + chained + product_s(10, 3, 4))
    of_weights = product_s(4, 3, 10) + product_s(4, 1, 10)
    trained = changed(backward, of_weights=True)
    assert seconds(trained) == pytest.approx(13 + chained + product_s(10, 3, 4) + of_weights)
    # Of 3 cells projected to 1 also the weights of the projection, 1 x 10 by 10 x 3.
    chained = 5 * (product_s(2, 1, 12) + 240 / 320 + product_s(2, 3, 1))
    products = product_s(10, 3, 12) + product_s(12, 3, 10) + product_s(12, 1, 10) + product_s(1, 3, 10)
    assert seconds(changed(trained, hidden_size=3, projected=1)) == pytest.approx(19 + chained + products)


@given(st.integers(1, 40), st.integers(1, 9))
def test_the_chain_has_all_cells_in_as_few_steps_as_can_be(steps: int, layers: int) -> None:
    """T x layers cells in T + layers - 1 steps, none of more than min(T, layers)."""
    found = steps_abreast(changed(LSTM, steps=steps, layers=layers))
    assert sum(found.values()) == steps + layers - 1
    assert sum(abreast * count for abreast, count in found.items()) == steps * layers
    assert max(found) == min(steps, layers)


@pytest.mark.parametrize(("l2_bytes", "expected_s"), [(0, 2.0), (320, 1.25), (319, 2.0)])
def test_weights_that_fit_are_read_from_the_l2(l2_bytes: int, expected_s: float) -> None:
    """Of 320 B a kernel finds those 240 of weights there that the one before it read, if 240 fit: 80 / 320 s."""
    server = replace(SERVER, gpu=replace(SERVER.gpu, l2_bytes=l2_bytes * 240 // 320))
    work = KernelWork(RECURRENT, F32, {}, 320, repeated_bytes=240)
    assert RooflineCosts(server).kernel(work).seconds == expected_s


def test_a_modern_card_multiplies_in_tf32_and_from_its_l2() -> None:
    """An H100 of 50 MiB: a step of 1 x 2048 by 2048 x 8192 reads 64 MiB from DRAM, in 19 us at 3.35 TB/s at least.

    Of 512 cells, 4 MiB, it takes hardly more than the launch of 3.3 us.
    """
    costs = EfficiencyCosts(shipped_server("h100_sxm"))

    def step_s(cells: int) -> float:
        few, many = (changed(LSTM, steps=each, rows=each, input_size=1, hidden_size=cells) for each in (1000, 2000))
        first, second = (recurrent_cost(costs, F32, each).seconds for each in (few, many))
        return (second - first) / 1000

    assert step_s(2048) > 64 * MIB / 3.35e12
    assert 2 * 3.299e-6 < step_s(512) < 5 * 3.299e-6


@pytest.mark.parametrize(("precision", "element_type"), [(Precision.FLOAT32, F32), (Precision.AMP_BFLOAT16, BF16)])
def test_a_built_layer_takes_what_a_captured_one_does(precision: Precision, element_type: ElementType) -> None:
    """Of 2 sequences of 5 steps with 4 features, and 16 cells, in the type in which autocast computes."""
    net = GraphBuilder("lstm", MapShape(4, steps=5))
    layer = net.layer("lstm", Lstm(16), net.layer("fc", Linear(4), 0))
    workload = Workload.in_precision(net.build(layer), 2, precision, Optimizer.SGD)
    server = shipped_server("h100_sxm")
    table = ServerCosts(server).table(workload)
    number = next(each.index for each in workload.graph.layers if each.name == "lstm")
    work = RecurrentWork(steps=5, rows=10, input_size=4, hidden_size=16, layers=1, gates=4)
    costs = ServerCosts(server).of_type(element_type)
    assert table.options(number, Phase.FORWARD) == (recurrent_cost(costs, element_type, work),)
    work = changed(work, is_backward=True, of_weights=True)
    assert table.options(number, Phase.BACKWARD) == (recurrent_cost(costs, element_type, work),)


def recurrent(tokens: int, batch: int = 2) -> CapturedStep:
    """Return the chain, whose first operation is an LSTM over so many tokens."""
    step = chain(batch)
    work = RecurrentWork(tokens, batch * tokens, 64, 64, 2, 4)
    first = changed(step.operations[0], name="aten._cudnn_rnn.default", flop={Arithmetic.PRODUCT: tokens}, work=work)
    return changed(step, operations=(first, *step.operations[1:]), sample_elements=tokens)


def test_captures_are_extended_along_their_steps() -> None:
    """Of 16, 24 and 32 tokens follow 4096, and a sequence twice as long takes twice as long but for its ends."""
    captures = [recurrent(each) for each in (16, 24, 32)]
    found = [interpolated(captures, Quantity.TOKENS, each) for each in (2048, 4096)]
    assert found == [recurrent(2048), recurrent(4096)]
    costs = ServerCosts(shipped_server("a100_80gb"))
    times = [
        costs.table(CapturedWorkload.of(each)).fastest(0, Phase.FORWARD).seconds
        for each in found
        if isinstance(each, CapturedStep)
    ]
    assert times[1] / times[0] == pytest.approx(2, rel=0.01)
    assert times[1] > 4096 * 2 * 3.299e-6


def test_measured_kernels_of_the_operator_are_taken(tmp_path: Path) -> None:
    """2 s for as many bytes, where the chain of 40 steps and two layers has 82 launches of a second and more."""
    step = recurrent(40)
    shape = f"torch:_cudnn_rnn,forward,1,float32,{step.operations[0].bytes_moved}x1x1,,only"
    row = f"{shape},,2.0,0.0,1,0,40,{step.operations[0].bytes_moved},measured,"
    measured = replace(SERVER, kernels=kernel_table(tmp_path, [row]))
    found = [
        ServerCosts(server).table(CapturedWorkload.of(step)).fastest(0, Phase.FORWARD) for server in (SERVER, measured)
    ]
    assert found[0].seconds > 82
    assert (found[1].seconds, found[1].origin) == (2.0, Origin.MEASURED)


def test_steps_by_a_table_take_at_most_its_shortest_kernel_to_launch() -> None:
    """Products take 1 s and 1 s a kilobyte, but for one of 0.25 s: a launch is no longer than that."""
    rows = [_row(nbytes, 1 + nbytes / 1000) for nbytes in range(100, 4000, 100)]
    costs = MeasuredCosts([*rows, _row(10, 0.25)], Roofline(1e-12, 1e-12, 0.0), F32)

    def launch_s(name: str) -> float:
        return costs.kernel(KernelWork(name, F32, {Arithmetic.PRODUCT: 0}, 0)).seconds

    assert launch_s(RECURRENT) == 0.25
    assert launch_s("product") == pytest.approx(1, rel=0.1)


def _row(nbytes: int, seconds: float) -> KernelRow:
    shape = KernelShape("fc 1", Phase.FORWARD, nbytes, F32, (MapShape(1),), "")
    return KernelRow(shape, "only", "", seconds, 0.0, 1, 0, nbytes, nbytes, Origin.MEASURED)
