"""What every paper has: numbers to check, and a report that one command makes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.layrub2018.paper import Layrub2018
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.swap2018.paper import Swap2018
from vdnnsim.claims.vdnn2016.paper import Vdnn2016


class Paper(Protocol):
    """The claims of one paper with the replays behind them."""

    def check(self) -> list[ClaimRow]:
        """Hold every number against the replay."""

    def report(self, rows: Sequence[ClaimRow]) -> dict[str, bytes]:
        """Return the content of every file of the report by its name; `rows` are the checked numbers."""


def open_paper(file: ClaimsFile, folder: Path) -> Paper:
    """Return the paper of a claims file; profiles are looked for from `folder`.

    Raises:
        ProfileError: the profile of a machine is missing or wrong.
    """
    match file.paper:
        case "swap2018":
            return Swap2018(file, folder)
        case "layrub2018":
            return Layrub2018(file, folder)
        case _:
            return Vdnn2016(file, folder)
