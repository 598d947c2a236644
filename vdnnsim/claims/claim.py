"""Claims as their files state them: an expected number, range or text, and its metric."""

from enum import Enum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec

from vdnnsim.errors import InputError
from vdnnsim.files.messages import not_one_of
from vdnnsim.hardware.profile import find_profile

PUBLIC: Final = "public2026"
PAPERS: Final = ("vdnn2016", "swap2018", "layrub2018", PUBLIC)
"""Papers, and published measurements, each in a folder of this package."""
Data = TypeVar("Data")


class Verdict(Enum):
    """Whether the replay is within the tolerance of the paper."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"


NetworkBatch = tuple[str, int]


def read_network(text: str) -> NetworkBatch:
    """Return network and batch size of a text as `vgg16(256)`; 0 if it has none."""
    network, _, batch_size = text.rstrip(")").partition("(")
    return network, int(batch_size or 0)


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of a claims file; the keys are explained at its top.

    Attributes:
        unit: of expected, range, at_least and at_most; empty for shares and texts.
    """

    id: str
    where: str
    metric: str
    networks: str | tuple[str, ...]
    policy: str
    hardware: str = ""
    gpus: int = 1
    baseline: str = ""
    over: Literal["mean", "min", "max"] | None = None
    reading: str = ""
    expected: float | str | None = None
    tolerance: float | None = None
    points: float | None = None
    range: tuple[float, float] | None = None
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""
    recorded: Verdict = Verdict.REPRODUCED
    reason: str = ""

    @property
    def claim_id(self) -> str:
        """Id of its claim, as v-vm-3 of v-vm-3.max."""
        return self.id.partition(".")[0]

    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number that counts as reproduced."""
        if self.range is not None:
            return self.range
        if self.at_least is not None:
            return self.at_least, float("inf")
        if self.at_most is not None:
            return float("-inf"), self.at_most
        assert isinstance(self.expected, float)
        slack = self.points if self.points is not None else abs(self.expected) * (self.tolerance or 0.0)
        return self.expected - slack, self.expected + slack


class ClaimsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims of one paper."""

    schema_version: Literal[1]
    paper: str
    title: str
    hardware: str
    claims: tuple[Claim, ...]

    def find_profiles(self, folder: Path) -> dict[str, Path]:
        """Return the profiles of all machines of the claims by name, looked up from `folder`."""
        names = {claim.hardware or self.hardware for claim in self.claims}
        return {name: find_profile(name, folder) for name in sorted(names)}


@cache
def read_claims(paper: str) -> ClaimsFile:
    """Read the claims of a paper.

    Raises:
        InputError: there is no such paper; the message offers the nearest one.
    """
    if paper not in PAPERS:
        raise InputError(not_one_of(paper, PAPERS, "a paper whose claims are known"))
    return read_data(paper, "claims.yaml", ClaimsFile)


def read_data(paper: str, name: str, kind: type[Data]) -> Data:
    return msgspec.yaml.decode(resources.files(__package__).joinpath(paper, name).read_bytes(), type=kind)
