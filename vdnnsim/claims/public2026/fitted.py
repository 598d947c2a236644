"""Published measurements to which a parameter of their machine was fitted, which do not count.

Rows to which kernels were fitted are in the table beside a profile, `NAME.fit.csv`, with the role `fit`; those of hosts
in `hosts.fit.csv`; those of a context in its source.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from vdnnsim.claims.public2026.measurements import SERIES, AnyRow, OperatorTime, PeakMemory, StepTime, number_of
from vdnnsim.units import ElementType

_HOST_SERIES: Final = "torchvision-12"
_CONTEXT_BATCHES: Final = (8, 32)
"""To which the context was fitted, of networks whose names have an even SHA-256."""


@dataclass(frozen=True)
class FittedRows:
    """Rows to which parameters of machines were fitted.

    Attributes:
        kernels: by machine, network with batch and origin of each row.
        hosts: machine, network, mode and element type of each row.
    """

    kernels: Mapping[str, frozenset[tuple[str, str]]]
    hosts: frozenset[tuple[str, str, str, str]]
    contexts: Mapping[str, str]

    @classmethod
    def of(cls, profiles: Mapping[str, Path]) -> "FittedRows":
        """Read them beside the profiles of machines, given by name."""
        folders = {path.parent for path in profiles.values()}
        return cls(
            {name: frozenset(_fit_rows(path.with_suffix(".fit.csv"))) for name, path in profiles.items()},
            frozenset(row for folder in folders for row in _host_rows(folder / "hosts.fit.csv")),
            {name: _context(msgspec.yaml.decode(path.read_bytes())) for name, path in profiles.items()},
        )

    def __call__(self, row: AnyRow) -> bool:
        repository, _, place = SERIES[row.series].source.partition(" at ")
        commit, network = place.partition(":")[0], row.setup.network.partition(":")[2]
        kernels = self.kernels.get(row.hardware, frozenset())
        match row:
            case StepTime(setup=setup):
                timed = f"{network} {row.batch_size}"
                if any(name == timed and origin.startswith(repository) for name, origin in kernels):
                    return True
                element_type = setup.precision.element_type
                stored = ElementType.FLOAT32 if element_type is ElementType.TF32 else element_type
                step = row.hardware, network, setup.mode.value, stored.value
                return row.series == _HOST_SERIES and step in self.hosts
            case OperatorTime():
                return any(origin.startswith(f"{repository} {commit}") for _, origin in kernels)
            case PeakMemory():
                fitted = repository.partition(",")[0] in self.contexts.get(row.hardware, "")
                return fitted and row.batch_size in _CONTEXT_BATCHES and number_of(row.setup.network) % 2 == 0


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


def _fit_rows(path: Path) -> Iterator[tuple[str, str]]:
    return ((row.get("network", ""), row["origin"]) for row in _rows(path) if row["role"] == "fit")


def _host_rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    return ((row["host"], row["network"], row["mode"], row["element_type"]) for row in _rows(path))


def _context(profile: Mapping[str, Any]) -> str:
    figure = profile["gpu"].get("context_eager", {})
    return str(figure["source"]) if figure.get("origin") == "fitted" else ""
