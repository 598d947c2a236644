"""Kills commands that write folders of results, at random moments: `python -m tests.hostile.kills 60`.

Two scenarios write into one folder in turn. After each kill all files are those of one of them, or the manifest says
that it is unfinished; and the command that is run to its end leaves the bytes of one that nobody disturbed, and nothing
beside them.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.toy import ROOT
from vdnnsim.report.folder import UNFINISHED

SCENARIO = """
schema_version: 1
workload: {network: tiny_linear, batch_size: BATCH}
hardware: titan_x_maxwell
policies: [base(p), POLICY]
"""
_WHILE_S = 0.01
"""In which files are replaced."""
COMMANDS = (("run", "run.json"), ("compare", "compare.json"))


def begin(folder: Path, command: str, scenario: str, out: str) -> "subprocess.Popen[bytes]":
    """Start a command."""
    more = ("--policies", "base,none,vdnn_all") if command == "compare" else ()
    words = (sys.executable, "-c", "from vdnnsim.cli import main; main()", command, scenario, "--out", out, *more)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def content(folder: Path) -> Mapping[str, bytes]:
    """Return the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} if folder.exists() else {}


def main(kills: int) -> None:
    """Kill so many commands of each kind, and print what came out."""
    draw = random.Random(7)  # noqa: S311  # equal draws each time
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, policy in enumerate(("vdnn_all(m)", "checkpoint")):
            (folder / f"s{number}.yaml").write_text(
                SCENARIO.replace("BATCH", str(number + 4)).replace("POLICY", policy)
            )
        for command, manifest in COMMANDS:
            whole = []
            for number in range(2):
                assert begin(folder, command, f"s{number}.yaml", f"{command}{number}").wait() == 0, "it failed"
                whole.append(content(folder / f"{command}{number}"))
            out, unfinished = folder / command, 0
            for kill in range(kills):
                process = begin(folder, command, f"s{kill % 2}.yaml", command)
                # Files are replaced at the end, beside which they become complete.
                known = set(out.glob(".vdnnsim-*"))
                while process.poll() is None and set(out.glob(".vdnnsim-*")) <= known:
                    time.sleep(0.0002)
                time.sleep(draw.uniform(0, _WHILE_S))
                process.send_signal(signal.SIGKILL)
                process.wait()
                found = content(out)
                if found and UNFINISHED in json.loads(found[manifest]):
                    unfinished += 1
                else:
                    assert found in ({}, *whole), "files of two runs, and nothing tells"
            assert begin(folder, command, "s0.yaml", command).wait() == 0, "it failed"
            assert content(out) == whole[0], "results differ"
            assert {path.name for path in out.iterdir()} == set(whole[0]), "something is left"
            sys.stdout.write(
                f"{command}: {kills} kills, {unfinished} of them among its files; equal bytes at the end\n"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]))
