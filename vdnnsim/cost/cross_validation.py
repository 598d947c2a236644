"""How well the cost model predicts what it was not fitted to: the criterion by which its structure is chosen.

Rows with role `fit` are cut into folds; each fold is left out in turn, the parameters are fitted to the rest, and the
rows of the fold are predicted. Fit and held-out rows would not do: the first reward any additional parameter, the
second would no longer be held out if the model were chosen by them.

    network   one fold each, whatever the library version: AlexNet under R4, R2 and with 16 bit storage are left out
              together
    layer     one fold each, L1 to L5
    DeepBench 5 folds, a convolution with all its phases and batch sizes in one of them

The total is the mean of the groups' mean absolute relative errors, weighted as the fit weighs the groups.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from vdnnsim.cost.fit_rows import ConvolutionKernel, FitRow

_SHAPE_FOLDS: Final = 5


def left_out_errors(
    rows: Sequence[Any], folds_of: Callable[[Sequence[Any]], Sequence[Hashable]], fit: Callable[[Sequence[Any]], object]
) -> dict[str, list[float]]:
    """Return the `relative_error` of each row that is fitted by its `group`, from a fit without the fold of the row."""
    fitted = [row for row in rows if row.role == "fit"]
    folds = folds_of(fitted)
    errors: dict[str, list[float]] = {}
    for left_out in dict.fromkeys(folds):
        found = fit([row for row, fold in zip(fitted, folds, strict=True) if fold != left_out])
        for row, fold in zip(fitted, folds, strict=True):
            if fold == left_out:
                errors.setdefault(row.group, []).append(row.relative_error(found))
    return errors


def cross_validation_report(errors: Mapping[str, Sequence[float]], group_weights: Mapping[str, float]) -> str:
    """Return a table of the errors that `left_out_errors` gives, and their weighted total in its last line."""
    weights = [group_weights[group] for group in errors]
    total = fmean([fmean(map(abs, found)) for found in errors.values()], weights)
    lines = [*error_lines(f"{'left out':31}", errors), f"{'cross-validated error':36}{total:21.2%}"]
    return "\n".join(lines) + "\n"


def error_lines(head: str, errors: Mapping[str, Sequence[float]]) -> list[str]:
    """Return a table of relative errors by group, under a head that is as wide as its first column."""
    lines = [f"{head}{'rows':>5}{'mean absolute error':>21}{'mean error':>12}"]
    for group, found in sorted(errors.items()):
        absolute, mean = fmean(map(abs, found)), fmean(found)
        lines.append(f"{group:{len(head)}}{len(found):5}{absolute:21.1%}{mean:+12.1%}")
    return lines


def shape_folds(rows: Sequence[FitRow]) -> list[Hashable]:
    """Return the fold of each row: what is measured, and for DeepBench a class of its shapes."""
    shapes: dict[Hashable, int] = {}
    found: list[Hashable] = []
    for row in rows:
        kernel = row.kernels[0][0]
        if row.group.startswith("DeepBench") and isinstance(kernel, ConvolutionKernel):
            shape = kernel.shape
            # The same image and filter under different batch sizes.
            key = (shape.c, shape.k, shape.input_size, shape.kernel, shape.stride, shape.padding)
            found.append(shapes.setdefault(key, len(shapes)) % _SHAPE_FOLDS)
        else:
            found.append(row.subject)
    return found
