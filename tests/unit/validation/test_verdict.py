"""What holds and what does not, on rows of 8 s simulated and some factor of that measured."""

from dataclasses import replace

import pytest

from tests.unit.validation.conftest import RowMaker
from vdnnsim.validation.method import FREE_GPU, PACED_CPU, Task
from vdnnsim.validation.row import Outcome, Requirement, Row, compared, mean_absolute_error, requirements

IN_MEAN, IN_EVERY_ROW = FREE_GPU.tolerance, PACED_CPU.tolerance


def named(judged: tuple[Requirement, ...], name: str) -> Requirement:
    return next(each for each in judged if each.name == name)


def test_what_holds_of_times_order_and_fit(make_row: RowMaker) -> None:
    """8 s simulated against 10 s measured is 20 % too little, against 5 s 60 % too much; 40 % in the mean."""
    rows = [make_row(1.25), make_row(0.625)]
    assert [row.time_error for row in rows] == [pytest.approx(-0.2), pytest.approx(0.6)]
    assert mean_absolute_error(rows) == pytest.approx(0.4)
    # Errors of 1/1.1 - 1 = -9.1 % and 0 are 4.5 % in the mean, within 5 %; 1/1.2 - 1 = -16.7 % is not within 10 %.
    rows = [make_row(1.1, predicted_share=0.05), make_row(1.0), make_row(1.2, predicted_share=0.06)]
    in_mean = requirements(rows, IN_MEAN)
    assert named(in_mean, "iteration time, kernels calibrated").holds
    other = named(in_mean, "iteration time, never calibrated")
    assert not other.holds
    assert other.broken_by == (rows[2],)
    assert (other.required, other.found) == ("within 10 % in the mean", "16.7 % in the mean of 1 rows, 16.7 % at worst")
    # With given durations every row counts.
    rows = [make_row(1.1), make_row(1.0), make_row(1.0)]
    judged = named(requirements(rows, IN_EVERY_ROW), "iteration time, kernels calibrated")
    assert (judged.holds, judged.broken_by) == (False, (rows[0],))
    # A row out of order breaks it.
    rows = [make_row(), make_row(order_fault="b ran before a")]
    judged = named(requirements(rows, IN_MEAN), "order of kernels and copies")
    assert (judged.holds, judged.found, judged.broken_by) == (False, "kept in 1 of 2 rows", (rows[1],))
    # Same policies must fit on both sides.
    unfit = Row(Task("vgg16", 1), "base(p)", Outcome.DOES_NOT_FIT)
    refused = Row(Task("vgg16", 1), "page_migration(p)", Outcome.REFUSED)
    assert named(requirements([make_row(), unfit, refused], IN_MEAN), "what fits").holds
    alone = replace(make_row(), simulated=None)
    out = replace(make_row(), outcome=Outcome.OUT_OF_MEMORY, measured=None)
    judged = named(requirements([make_row(), alone, out], IN_MEAN), "what fits")
    assert (judged.holds, judged.broken_by) == (False, (alone, out))
    # Nothing compared is a failure.
    rows = [Row(Task("vgg16", 1), "base(p)", Outcome.DOES_NOT_FIT)]
    assert compared(rows) == ()
    assert [each.name for each in requirements(rows, IN_MEAN) if not each.holds] == ["rows compared"]


@pytest.mark.parametrize(("extra_bytes", "holds_on"), [(0, "GPU CPU"), (1, "GPU"), (6, "")])
def test_memory_is_exact_or_within_half_a_percent(make_row: RowMaker, extra_bytes: int, holds_on: str) -> None:
    """Of 600 B one more is 0.17 %, six more are 1 %."""
    row = make_row(requested_bytes=600 + extra_bytes)
    assert row.simulated is not None
    row = replace(row, simulated=replace(row.simulated, peaks=replace(row.simulated.peaks, requested_bytes=600)))
    for tolerance, device in ((IN_MEAN, "GPU"), (IN_EVERY_ROW, "CPU")):
        assert named(requirements([row], tolerance), "peak requested memory").holds is (device in holds_on)
