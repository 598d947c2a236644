"""The claims of the vDNN paper, with replays on its one machine that all share."""

from collections.abc import Sequence
from pathlib import Path

from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.vdnn2016.check import check_claim
from vdnnsim.claims.vdnn2016.report import paper_report
from vdnnsim.claims.vdnn2016.runs import PaperRuns
from vdnnsim.hardware.profile import find_profile, read_profile


class Vdnn2016:
    """Rhu et al., MICRO 2016."""

    def __init__(self, file: ClaimsFile, folder: Path) -> None:
        self._file = file
        self._profile = find_profile(file.hardware, folder)
        self._runs = PaperRuns(read_profile(self._profile))

    def check(self) -> list[ClaimRow]:
        """Hold every number against the replay."""
        return [check_claim(claim, self._runs) for claim in self._file.claims]

    def report(self, rows: Sequence[ClaimRow]) -> dict[str, bytes]:
        """Return its figures, tables and readings."""
        return paper_report(self._file, rows, self._runs, self._profile)
