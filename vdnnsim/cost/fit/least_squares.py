"""The least squares fit of a cost model's parameters to measured times, and cross-validation.

Parameters with origin `fitted` in the profile are fitted, all others are fixed. Minimized is the sum over the rows with
role `fit` of rho(w ln(predicted / observed)), rho the soft L1 loss with its bend at 5 %, so that outliers do not
dominate; w^2 is the weight of the row's group over the rows in it.
All parameters are positive, fractions at most 1.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.units import ElementType

_LOSS_BEND: Final = 0.05


class Kernel(Protocol):
    """A kernel that ran in a measured time."""

    def seconds(self, machine: Any, /) -> float:  # noqa: ANN401 - that of its cost model
        """Return its predicted time."""


@dataclass(frozen=True, slots=True)
class FitRow:
    """One measured time and the kernels that ran in it, with how often each did.

    Attributes:
        role: `fit`; `held_out`, never seen by the fit; `other_version` of a library, printed and never fitted.
        group: rows that share one weight in the fit and one line of the summary.
        subject: a network, or a kernel.
        algorithms: from which the library chose; empty if not known.
        origin: repository, commit, file and entry.
        fold: equal for rows that cross-validation leaves out together.
    """

    role: str
    group: str
    subject: str
    phase: Phase
    element_type: ElementType
    observed_s: float
    kernels: tuple[tuple[Kernel, int], ...]
    origin: str
    algorithms: str = ""
    fold: Hashable = None

    def predicted_s(self, machine: Any) -> float:  # noqa: ANN401 - that of its cost model
        return sum(count * kernel.seconds(machine) for kernel, count in self.kernels)

    def relative_error(self, machine: Any) -> float:  # noqa: ANN401 - that of its cost model
        """Return (predicted - observed) / observed."""
        return self.predicted_s(machine) / self.observed_s - 1

    @property
    def source(self) -> str:
        """The first word of its group."""
        return self.group.partition(" ")[0]


class FitStart(msgspec.Struct, frozen=True):
    """Initial values of parameters, and weights of groups of rows of `maxwell`."""

    efficiency: dict[str, float]
    maxwell: dict[str, float]
    group_weights: dict[str, float]


START: Final = msgspec.yaml.decode(Path(__file__).with_name("start.yaml").read_bytes(), type=FitStart)


@dataclass(frozen=True, slots=True)
class FittedModel:
    """How the parameters of one kind of cost model are fitted.

    Attributes:
        read_rows: returns the rows of a file, `hw_profiles/NAME.fit.csv`.
        machine: returns the machine of a server with some parameters replaced.
        start: first value of each parameter that can be fitted.
        group_weights: by group of rows; 1 for others.
        factor: by which a parameter may move from its start.
        ftol: relative change of the loss at which the fit ends.
        prior: weight of ln(parameter / start), so that undetermined parameters stay near their start.
        by_source: whether cross-validation also leaves out each source.
    """

    read_rows: Callable[[Path], tuple[FitRow, ...]]
    machine: Callable[[Server, Mapping[str, float]], Any]
    start: Mapping[str, float]
    group_weights: Mapping[str, float]
    factor: float
    ftol: float
    prior: float = 0.0
    by_source: bool = False

    def fit(self, server: Server, rows: Sequence[FitRow]) -> dict[str, float]:
        """Return the best parameters for the rows with role `fit`.

        Raises:
            ImportError: scipy is not installed.
        """
        # Not at the top: pages read rows without fitting them.
        from scipy.optimize import least_squares

        used = [row for row in rows if row.role == "fit"]
        sizes = Counter(row.group for row in used)
        weights = [math.sqrt(self.group_weights.get(row.group, 1) / sizes[row.group]) for row in used]
        fitted = fitted_names(server)
        start = {name: first for name, first in self.start.items() if name in fitted}
        logs, spread = [math.log(value) for value in start.values()], math.log(self.factor)

        def named(point: Iterable[float]) -> dict[str, float]:
            return {name: math.exp(float(log)) for name, log in zip(start, point, strict=True)}

        def residuals(point: Iterable[float]) -> list[float]:
            found = named(point)
            machine = self.machine(server, found)
            errors = [
                weight * math.log(row.predicted_s(machine) / row.observed_s)
                for row, weight in zip(used, weights, strict=True)
            ]
            return errors + [self.prior * math.log(found[name] / first) for name, first in start.items() if self.prior]

        solution = least_squares(
            residuals,
            logs,
            bounds=(
                [log - spread for log in logs],
                [1e-9 if name.endswith("_fraction") else log + spread for name, log in zip(start, logs, strict=True)],
            ),
            loss="soft_l1",
            f_scale=_LOSS_BEND,
            diff_step=1e-3,
            ftol=self.ftol,
        )
        return named(solution.x)

    def left_out_errors(
        self, server: Server, rows: Sequence[FitRow], fold: Callable[[FitRow], Hashable]
    ) -> list[tuple[FitRow, float]]:
        """Return each row with role `fit` and its relative error by a fit without the rows of its fold."""
        used = [row for row in rows if row.role == "fit"]
        errors = []
        for left_out in dict.fromkeys(map(fold, used)):
            machine = self.machine(server, self.fit(server, [row for row in used if fold(row) != left_out]))
            errors += [(row, row.relative_error(machine)) for row in used if fold(row) == left_out]
        return errors


def fitted_names(server: Server) -> list[str]:
    """Return the parameters of the cost model that the profile of a server calls fitted."""
    paths = {figure.path for figure in server.figures if figure.origin is Origin.FITTED}
    return [name for name in server.cost_model if f"cost_model.{name}" in paths]
