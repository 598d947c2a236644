from collections.abc import Sequence

import pytest

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.cross_validation import cross_validation_report, left_out_errors, shape_folds
from vdnnsim.cost.fit_rows import ConvolutionKernel, FitRow
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.workspace import IMPLICIT_GEMM
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import ElementType


def a_row(subject: str, group: str = "layer R2", role: str = "fit", n: int = 1, channels: int = 1) -> FitRow:
    shape = ConvolutionShape(n, channels, 1, (1, 1), (1, 1))
    kernel = ConvolutionKernel(shape, Phase.FORWARD, (IMPLICIT_GEMM,), bias=False)
    return FitRow(role, group, subject, "implicit", Phase.FORWARD, ElementType.FLOAT32, 1.0, ((kernel, 1),), "test")


def subjects_left_out(rows: Sequence[FitRow], machine: Machine) -> list[set[str]]:
    """The subjects that each fit did not see, in the order of the fits."""
    folds: list[set[str]] = []

    def fit(kept: Sequence[FitRow]) -> Machine:
        folds.append({row.subject for row in rows} - {row.subject for row in kept})
        return machine

    left_out_errors(rows, shape_folds, fit)
    return folds


def test_all_rows_of_a_subject_are_left_out_together(toy_machine: Machine) -> None:
    rows = [a_row("alexnet", "network R4"), a_row("L1"), a_row("alexnet", "network R2"), a_row("L2")]
    assert subjects_left_out(rows, toy_machine) == [{"alexnet"}, {"L1"}, {"L2"}]


def test_batch_sizes_of_a_shape_are_left_out_together(toy_machine: Machine) -> None:
    """Six shapes in five folds: the sixth joins the first."""
    rows = [a_row(f"conv {c}", "DeepBench data", channels=c) for c in (1, 2, 3, 4, 5, 6)]
    rows.append(a_row("conv 7", "DeepBench data", n=2, channels=2))
    folds = [{"conv 1", "conv 6"}, {"conv 2", "conv 7"}, {"conv 3"}, {"conv 4"}, {"conv 5"}]
    assert subjects_left_out(rows, toy_machine) == folds


def test_rows_of_other_roles_take_no_part(toy_machine: Machine) -> None:
    seen: list[str] = []

    def fit(kept: Sequence[FitRow]) -> Machine:
        seen.extend(row.subject for row in kept)
        return toy_machine

    rows = [a_row("L1"), a_row("L2"), a_row("L3", role="other_version"), a_row("overfeat", role="held_out")]
    errors = left_out_errors(rows, shape_folds, fit)
    assert seen == ["L2", "L1"]
    assert list(errors) == ["layer R2"]
    assert len(errors["layer R2"]) == 2


def test_the_total_is_weighted_by_group() -> None:
    """Means of absolute errors: a 20 %, b 40 %; (3 x 20 % + 1 x 40 %) / 4 = 25 %."""
    printed = cross_validation_report({"b": [0.4], "a": [0.1, -0.3]}, {"a": 3, "b": 1, "c": 5})
    lines = [line.split() for line in printed.splitlines()]
    assert lines[1] == ["a", "2", "20.0%", "-10.0%"]
    assert lines[2] == ["b", "1", "40.0%", "+40.0%"]
    assert lines[3] == ["cross-validated", "error", "25.00%"]


@pytest.mark.parametrize("subjects", [["L1"], ["L1", "L2", "L3"]])
def test_each_fitted_row_is_predicted_once(subjects: list[str], toy_machine: Machine) -> None:
    errors = left_out_errors([a_row(subject) for subject in subjects], shape_folds, lambda _: toy_machine)
    assert len(errors["layer R2"]) == len(subjects)
