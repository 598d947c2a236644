"""Sweeps that are killed: their database is sound, its rows are whole, and every finished point is still there."""

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.toy import ROOT
from vdnnsim.study.store import DATABASE

STUDY = """
schema_version: 1
scenario:
  schema_version: 1
  workload: {network: tiny_linear, batch_size: 4, element_type: float32}
  hardware: titan_x_maxwell
  policies: [base(p), vdnn_all(m)]
axes:
  workload.batch_size: {from: 1, to: POINTS, step: 1}
  link.bandwidth: [8 GB/s, 16 GB/s]
"""
MAIN = (sys.executable, "-c", "from vdnnsim.cli import main; main()")
_ERROR, _FITS = 3, 5


@dataclass(frozen=True)
class Found:
    """Keys of a database, whether it is sound, how many rows lack a part."""

    keys: frozenset[str]
    sound: bool
    torn: int


def study_file(folder: Path, batches: int) -> Path:
    """Write a study of four times as many points as batches."""
    path = folder / "kills.yaml"
    path.write_text(STUDY.replace("POINTS", str(batches)))
    return path


def begin(study: Path, out: Path) -> "subprocess.Popen[bytes]":
    command = (*MAIN, "sweep", str(study), "--out", str(out), "--workers", "2")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def look(out: Path) -> Found:
    path = out / DATABASE
    if not path.exists():
        return Found(frozenset(), sound=True, torn=0)
    connection = sqlite3.connect(path)
    try:
        sound = connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        if not connection.execute("SELECT name FROM sqlite_master").fetchall():
            return Found(frozenset(), sound=sound, torn=0)
        rows = connection.execute("SELECT * FROM points").fetchall()
    finally:
        connection.close()
    torn = sum(not row[_ERROR] and None in row for row in rows)
    return Found(frozenset(row[0] for row in rows), sound=sound, torn=torn)


def kill_once(study: Path, out: Path, delay_s: float) -> bool:
    """Kill a sweep after a while, and check its database; return whether it had ended before."""
    process = begin(study, out)
    try:
        process.wait(delay_s)
    except subprocess.TimeoutExpired:
        before = look(out)
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = look(out)
        assert after.sound, "the database is damaged"
        assert after.torn == 0, f"{after.torn} rows are torn"
        assert before.keys <= after.keys, f"{len(before.keys - after.keys)} finished points are lost"
        return False
    assert process.returncode == 0, "a sweep failed"
    return True
