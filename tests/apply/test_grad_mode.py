"""Parts of forward that compute without gradients, as a reentrant checkpoint does, and are recomputed by a plan."""

from tests.apply.generated.judging import Drawn, judge


def test_an_lstm_under_a_reentrant_checkpoint_has_the_same_bits() -> None:
    """On a CPU oneDNN's LSTM rounds otherwise where gradients are on, by 6e-8: drawn loop 10103 has one."""
    outcome = judge(Drawn.of(10103))
    assert not outcome.trouble
    assert outcome.remade
