"""LSTMs and GRUs of cuDNN 5.1 as others measured them on a GeForce GTX Titan X, in float32.

Source: https://github.com/MaximumEntropy/cudnn_rnn_theano_benchmarks, README.md of October 2016: the milliseconds of a
whole batch in Theano, forward, and forward and backward with a loss. Nothing was fitted to these rows; those of a few
milliseconds hold what Theano's host does beside.
"""

from statistics import fmean

from tests.machines import shipped_server
from vdnnsim.cost.maxwell import MaxwellCosts
from vdnnsim.cost.recurrent import recurrent_cost
from vdnnsim.dnn.kernel_work import RecurrentWork
from vdnnsim.units import ElementType

# (layers, batch, steps, cells): microseconds of a sample, LSTM forward and all, GRU forward and all.
ROWS = {
    (1, 32, 30, 128): (59.5, 118.8, 57.6, 117.4),
    (1, 32, 30, 512): (102.4, 223.2, 77.6, 184.6),
    (1, 32, 30, 1024): (161.1, 601.8, 136.2, 394.8),
    (1, 128, 30, 128): (15.0, 33.4, 14.4, 32.2),
    (1, 128, 30, 512): (31.7, 100.8, 26.5, 83.3),
    (1, 128, 30, 1024): (69.0, 221.2, 59.1, 181.3),
    (3, 128, 30, 512): (70.2, 244.9, 55.7, 197.1),
    (3, 128, 30, 1024): (256.8, 820.6, 195.2, 639.5),
    (3, 128, 200, 512): (485.9, 1539.5, 386.4, 1253.8),
    (3, 128, 200, 1024): (1692.1, 5342.5, 1274.5, 4163.4),
}


def errors(layers: int, batch: int, steps: int, cells: int) -> list[float]:
    """Return the relative errors of a row."""
    costs, found = MaxwellCosts(shipped_server("titan_x_maxwell")), list[float]()
    for gates, measured in ((4, ROWS[layers, batch, steps, cells][:2]), (3, ROWS[layers, batch, steps, cells][2:])):
        seconds = 0.0
        for is_backward, measured_us in zip((False, True), measured, strict=True):
            work = RecurrentWork(
                steps, batch * steps, cells, cells, layers, gates, is_backward=is_backward, of_weights=is_backward
            )
            seconds += recurrent_cost(costs, ElementType.FLOAT32, work).seconds
            found.append(seconds / (batch * measured_us * 1e-6) - 1)
    return found


def test_stacks_of_a_titan_x_are_met_without_a_fit() -> None:
    """Within 14 %, 7 % on average: 30 and 200 steps of three layers."""
    found = [each for row in ROWS if row[0] > 1 for each in errors(*row)]
    assert max(map(abs, found)) < 0.14
    assert fmean(map(abs, found)) < 0.075


def test_single_layers_of_a_titan_x_are_near_where_they_are_long() -> None:
    """Of 128 sequences and 512 cells or more, within 41 %; smaller ones take up to 2.8 times as long as here."""
    found = {row: errors(*row) for row in ROWS if row[0] == 1}
    large = [each for (_, batch, _, cells), row in found.items() if batch == 128 and cells >= 512 for each in row]
    assert max(map(abs, large)) < 0.41
    assert min(map(min, found.values())) > 1 / 2.8 - 1
