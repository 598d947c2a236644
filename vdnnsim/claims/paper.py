"""What every paper has: numbers to check, replays that they share, and a report that one command makes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from vdnnsim.claims.claim import Claim, ClaimsFile
from vdnnsim.claims.layrub2018 import metrics as layrub_metrics
from vdnnsim.claims.layrub2018 import report as layrub_report
from vdnnsim.claims.layrub2018.runs import LayrubRuns
from vdnnsim.claims.public2026 import check as public_check
from vdnnsim.claims.public2026 import report as public_report
from vdnnsim.claims.public2026.replays import Capture
from vdnnsim.claims.public2026.scoreboard import Scoreboard
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.swap2018 import metrics as swap_metrics
from vdnnsim.claims.swap2018 import report as swap_report
from vdnnsim.claims.swap2018.runs import ServerRuns
from vdnnsim.claims.vdnn2016 import metrics as vdnn_metrics
from vdnnsim.claims.vdnn2016 import report as vdnn_report
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Server

Runs = TypeVar("Runs")


@dataclass(frozen=True)
class Paper(Generic[Runs]):
    """The claims of one paper with the replays behind them.

    Attributes:
        profiles: the files of its machines.
        check_claim: computes a claim's number on a machine by name, unless the claim names its own.
        write_report: returns the content of every file of the report by its name, and says in lines how far it is.
    """

    file: ClaimsFile
    profiles: tuple[Path, ...]
    runs: Runs
    check_claim: Callable[[Claim, Runs, str], ClaimRow]
    write_report: Callable[
        [ClaimsFile, Sequence[ClaimRow], Runs, Sequence[Path], Callable[[str], object]], dict[str, bytes]
    ]

    def check(self, tell: Callable[[str], object] = str) -> list[ClaimRow]:
        """Hold every number against the replay; `tell` says in a line how far that is."""
        rows: list[ClaimRow] = []
        for claim in self.file.claims:
            tell(f"{len(rows)} of {len(self.file.claims)} numbers, {claim.id}")
            rows.append(self.check_claim(claim, self.runs, self.file.hardware))
        return rows

    def report(self, rows: Sequence[ClaimRow], tell: Callable[[str], object] = str) -> dict[str, bytes]:
        """Return the content of every file of the report by its name; `rows` are the checked numbers."""
        return self.write_report(self.file, rows, self.runs, self.profiles, tell)


AnyPaper = Paper[VdnnRuns] | Paper[ServerRuns] | Paper[LayrubRuns] | Paper[Scoreboard]


def open_paper(file: ClaimsFile, folder: Path, capture: Capture | None = None) -> AnyPaper:
    """Return the paper of a claims file; profiles are looked for from `folder`.

    Args:
        file: the claims.
        folder: where to look for profiles.
        capture: captures networks that are not built, of which papers have none; None where rows of them are left out.

    Raises:
        ProfileError: the profile of a machine is missing or wrong.
    """
    found = file.find_profiles(folder)
    machines: Mapping[str, Server] = {name: read_profile(path) for name, path in found.items()}
    profiles = tuple(found.values())
    match file.paper:
        case "swap2018":
            return Paper(file, profiles, ServerRuns(machines), swap_metrics.METRICS.check, swap_report.paper_report)
        case "layrub2018":
            return Paper(file, profiles, LayrubRuns(machines), layrub_metrics.METRICS.check, layrub_report.paper_report)
        case "public2026":
            board = Scoreboard.of(machines, found, capture)
            return Paper(file, profiles, board, public_check.check_claim, public_report.paper_report)
        case _:
            # All claims are on one machine.
            runs = VdnnRuns(machines[file.hardware])
            return Paper(file, profiles, runs, vdnn_metrics.METRICS.check, vdnn_report.paper_report)
