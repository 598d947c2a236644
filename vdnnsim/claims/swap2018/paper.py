"""The claims of Kim et al. (2018), with replays on its machines that all share."""

from collections.abc import Sequence
from pathlib import Path

from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.swap2018.check import check_claim
from vdnnsim.claims.swap2018.report import paper_report
from vdnnsim.claims.swap2018.runs import ServerRuns
from vdnnsim.hardware.profile import read_profile


class Swap2018:
    """Kim, Lee, Kim, Je, Roh, 2018."""

    def __init__(self, file: ClaimsFile, folder: Path) -> None:
        self._file = file
        self._profiles = file.find_profiles(folder)
        self._runs = ServerRuns({name: read_profile(path) for name, path in self._profiles.items()})

    def check(self) -> list[ClaimRow]:
        """Hold every number against the replay."""
        return [check_claim(claim, self._runs, self._file.hardware) for claim in self._file.claims]

    def report(self, rows: Sequence[ClaimRow]) -> dict[str, bytes]:
        """Return its tables, pictures and readings."""
        return paper_report(self._file, rows, self._runs, tuple(self._profiles.values()))
