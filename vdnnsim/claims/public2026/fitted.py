"""Which rows a parameter of their machine was fitted on: those are no evidence.

What kernels were fitted to is in the table beside a profile, `NAME.fit.csv`, in its rows of the role `fit`; what a host
and a context were fitted to is in words in the source of the figure.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from vdnnsim.claims.public2026.measurements import SERIES, AnyRow, OperatorTime, PeakMemory, StepTime, number_of

_CONTEXT_BATCHES: Final = (8, 32)
"""Of the networks whose names have an even SHA-256 the context was fitted on these."""


@dataclass(frozen=True)
class FittedRows:
    """What the parameters of machines were fitted on.

    Attributes:
        kernels: by machine, network with batch and origin of each row of the role `fit`.
        figures: by machine, the sources of figures of the host and of the context that were fitted.
    """

    kernels: Mapping[str, frozenset[tuple[str, str]]]
    figures: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, profiles: Mapping[str, Path]) -> "FittedRows":
        """Read what the profiles of machines, by name, say of it."""
        return cls(
            {name: frozenset(_fit_rows(path.with_suffix(".fit.csv"))) for name, path in profiles.items()},
            {name: tuple(_fitted_figures(msgspec.yaml.decode(path.read_bytes()))) for name, path in profiles.items()},
        )

    def __call__(self, row: AnyRow) -> bool:
        """Whether a parameter was fitted on a row."""
        repository, _, place = SERIES[row.series].source.partition(" at ")
        commit = place.partition(":")[0]
        kernels = self.kernels.get(row.hardware, frozenset())
        sources = [each for each in self.figures.get(row.hardware, ()) if repository.partition(",")[0] in each]
        match row:
            case StepTime():
                network = f"{row.setup.network.partition(':')[2]} {row.batch_size}"
                timed = any(name == network and origin.startswith(repository) for name, origin in kernels)
                return timed or any(f" {row.setup.precision.value}," in each for each in sources)
            case OperatorTime():
                return any(origin.startswith(f"{repository} {commit}") for _, origin in kernels)
            case PeakMemory():
                return bool(sources) and row.batch_size in _CONTEXT_BATCHES and number_of(row.setup.network) % 2 == 0


def _fit_rows(path: Path) -> Iterator[tuple[str, str]]:
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["role"] == "fit":
                yield row.get("network", ""), row["origin"]


def _fitted_figures(profile: Mapping[str, Any]) -> Iterator[str]:
    for section in ("host", "gpu"):
        for figure in profile[section].values():
            if isinstance(figure, dict) and figure.get("origin") == "fitted":
                yield figure["source"]
