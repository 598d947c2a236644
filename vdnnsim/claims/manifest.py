"""What a report on a paper depends on: the content of its run.json."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.report.provenance import versions


def manifest(file: ClaimsFile, inputs: Iterable[Path], **chance: int) -> str:
    """Return the command, the versions, the files that were read and, where something was drawn, seed and draws."""
    content = {
        "paper": file.title,
        "command": f"vdnnsim claims --paper {file.paper} --report DIR",
        "versions": versions(),
        "inputs": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs},
        "seed": None,
        **chance,
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
