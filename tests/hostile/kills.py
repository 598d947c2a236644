"""Kills commands at random times, half of them while files are replaced: `python -m tests.hostile.kills 34 [NAME]`.

Two scenarios write into one folder in turn. After each kill all files are of one of them, or the manifest says that it
is unfinished; lines of journals and points of studies are kept. A command that then runs to its end leaves nothing
beside its files, which have the bytes of an undisturbed run unless they are measured. `validate` reads the profile that
`calibrate` wrote before it.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.study import kills as sweeps
from tests.toy import ROOT
from vdnnsim.files.atomic import UNFINISHED

SCENARIO: Final = """
schema_version: 1
workload: {network: tiny_linear, batch_size: BATCH}
hardware: titan_x_maxwell
policies: [base(p), POLICY]
"""
MODEL: Final = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4))
"""
_WHILE_S: Final = 0.01
"""Duration of replacing files."""
_DONE: Final = (0, 3)
_ONE_TASK: Final = """
from dataclasses import replace
import vdnnsim.validation.method as method
pacing = replace(method.PACED_CPU.pacing, stretches=(1.0,))
method.PACED_CPU = replace(method.PACED_CPU, tasks=method.PACED_CPU.tasks[:1], pacing=pacing)
"""
"""On a busy machine its times may be beyond the tolerance: exit status 3."""


@dataclass(frozen=True)
class Victim:
    """A command that is killed, whose NUMBER is 0 or 1, behind a prelude in Python.

    Its manifest, if it writes several files, marks the folder as unfinished; measurements differ each time.
    """

    words: str
    manifest: str = ""
    prelude: str = ""
    measures: bool = False

    @property
    def name(self) -> str:
        return self.words.split()[0]

    def begin(self, folder: Path, number: int, out: str) -> "subprocess.Popen[bytes]":
        code = f"{self.prelude}\nfrom vdnnsim.cli import main; main()".replace("NUMBER", str(number))
        words = self.words.replace("NUMBER", str(number)).replace("OUT", out).split()
        cache = folder / "cache" / str(time.time_ns())
        own = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache), "TMPDIR": str(folder / "tmp")}
        command, nowhere = (sys.executable, "-c", code, *words), subprocess.DEVNULL
        return subprocess.Popen(command, cwd=folder, env=os.environ | own, stdout=nowhere, stderr=nowhere)

    def is_unfinished(self, found: Mapping[str, bytes]) -> bool:
        """Whether the manifest marks files as unfinished."""
        return UNFINISHED in _keys(found.get(self.manifest, b"{}"))

    def are_of_one(self, before: Mapping[str, bytes], found: Mapping[str, bytes]) -> bool:
        """Whether measured files are of one command: an old manifest, written last, means that all are old."""
        names = [name for name in {*before, *found} if not name.endswith(".jsonl")]
        is_older = before.get(self.manifest) == found.get(self.manifest)
        return all(name in found and (not is_older or before.get(name) == found[name]) for name in names)


VICTIMS: Final = (
    Victim("run sNUMBER.yaml --out OUT", "run.json"),
    Victim("compare sNUMBER.yaml --out OUT --policies base,none,vdnn_all", "compare.json"),
    Victim("capture model.py:make --batch 1NUMBER --image 3x2x2 --out OUT/model.step.json"),
    Victim("calibrate --device cpu --network tiny_linear --batch-size 2 --out OUT/own.yaml", "own.yaml", measures=True),
    Victim("validate --device cpu --profile ./calibrate/own.yaml --out OUT", "run.json", _ONE_TASK, measures=True),
)


def _keys(content: bytes) -> Collection[str]:
    """Return the keys of a manifest, which is JSON, or of a profile, which is YAML."""
    keys: Collection[str] = yaml.safe_load(content)
    return keys


def content(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} if folder.exists() else {}


def attack(victim: Victim, folder: Path, kills: int, draw: random.Random) -> str:
    """Kill a command so often, and return a summary; raise AssertionError where something was lost."""
    whole, begun_s = [], time.monotonic()
    for number in range(2):
        assert victim.begin(folder, number, f"{victim.name}{number}").wait() in _DONE, f"{victim.name} failed"
        whole.append(content(folder / f"{victim.name}{number}"))
    lasts_s, out, unfinished, ended = (time.monotonic() - begun_s) / 2, folder / victim.name, 0, 0
    for kill in range(kills):
        before = content(out)
        process = victim.begin(folder, kill % 2, victim.name)
        if draw.random() < 0.5:
            with suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0, lasts_s))
        else:
            # Temporary files appear when results are written.
            known = _becoming(out)
            while process.poll() is None and _becoming(out) <= known:
                time.sleep(0.0002)
            time.sleep(draw.uniform(0, _WHILE_S))
        ended += process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = content(out)
        for name in (name for name in before if name.endswith(".jsonl")):
            if name in found:
                lines, kept = (set(each[name].split(b"\n")[:-1]) for each in (before, found))
                assert lines <= kept, "a measurement is lost"
            else:
                assert before.get("own.yaml") != found["own.yaml"], "all measurements are lost"
        if victim.is_unfinished(found):
            unfinished += 1
        else:
            is_whole = victim.are_of_one(before, found) if victim.measures else found in ({}, *whole)
            assert is_whole, f"files of two commands, and nothing tells: {sorted(before)}, {sorted(found)}"
    assert victim.begin(folder, 0, victim.name).wait() in _DONE, f"{victim.name} failed"
    last = content(out)
    left = {path.name for path in out.iterdir()} - set(whole[0]) | {path.name for path in folder.glob("tmp/vdnnsim*")}
    assert not left, f"{left} is left"
    assert victim.measures or last == whole[0], "results differ"
    equal = "equal names" if victim.measures else "equal bytes"
    return (
        f"{victim.name}: {kills} kills, {unfinished} of them among its files, {ended} after its end; {equal} at the end"
    )


def _becoming(out: Path) -> set[Path]:
    return {*out.glob(".vdnnsim-*"), *out.parent.glob(".vdnnsim-*")}


def main(kills: int, names: Sequence[str]) -> None:
    """Kill so many commands of each kind, or of those named, and print summaries."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.py").write_text(MODEL)
        (folder / "tmp").mkdir()
        for number, policy in enumerate(("vdnn_all(m)", "checkpoint")):
            scenario = SCENARIO.replace("BATCH", str(number + 4)).replace("POLICY", policy)
            (folder / f"s{number}.yaml").write_text(scenario)
        for victim in VICTIMS:
            if names and victim.name not in names:
                continue
            draw = random.Random(f"kills {victim.name}")  # noqa: S311  # equal draws each time
            sys.stdout.write(f"{attack(victim, folder, kills, draw)}\n")
            sys.stdout.flush()
    if not names or "sweep" in names:
        sweeps.main(kills)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
