"""An open paper: its claims with their replays, checked one by one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vdnnsim.claims.check import ClaimRow
from vdnnsim.claims.claim import Claim, ClaimsFile
from vdnnsim.claims.layrub2018 import metrics as layrub2018
from vdnnsim.claims.layrub2018.runs import LayrubRuns
from vdnnsim.claims.public2026.replays import Capture
from vdnnsim.claims.public2026.scoreboard import Scoreboard, check_claim
from vdnnsim.claims.swap2018 import runs as swap2018
from vdnnsim.claims.vdnn2016 import metrics as vdnn2016
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.hardware.profile import read_profile


@dataclass(frozen=True)
class Paper:
    """The claims of one paper with their replays.

    Attributes:
        check_claim: checks a claim by them, on a machine by name unless the claim names its own.
    """

    file: ClaimsFile
    profiles: tuple[Path, ...]
    runs: Any
    check_claim: Callable[[Claim, Any, str], ClaimRow]

    def check(self, progress: Callable[[str], object] = str) -> list[ClaimRow]:
        """Check every number; `progress` gets a line before each."""
        rows: list[ClaimRow] = []
        for claim in self.file.claims:
            progress(f"{len(rows)} of {len(self.file.claims)} numbers, {claim.id}")
            rows.append(self.check_claim(claim, self.runs, self.file.hardware))
        return rows


def open_paper(file: ClaimsFile, folder: Path, capture: Capture | None = None) -> Paper:
    """Return the paper of a claims file; its machines' profiles are looked up from a folder.

    Papers have no network that is not built; without `capture`, rows of captured ones are left out.
    """
    found = file.find_profiles(folder)
    machines = {name: read_profile(path) for name, path in found.items()}
    runs: Any
    check: Callable[[Claim, Any, str], ClaimRow]
    match file.paper:
        case "swap2018":
            runs, check = swap2018.ServerRuns(machines), swap2018.METRICS.check
        case "layrub2018":
            runs, check = LayrubRuns(machines), layrub2018.METRICS.check
        case "public2026":
            runs, check = Scoreboard.of(machines, found, capture), check_claim
        case _:
            # All claims are on one machine.
            runs, check = VdnnRuns(machines[file.hardware]), vdnn2016.METRICS.check
    return Paper(file, tuple(found.values()), runs, check)
