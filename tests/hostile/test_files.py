"""Every kind of file that is read, changed at a few places, and the commands that read it.

A command ends with 0, 1 or 2, refuses in one line that names the file, and changes none of its inputs; a traceback, a
warning or 2 GiB more fail. `pytest tests/hostile --hypothesis-profile thorough --timeout 0` tries a thousand of each.
"""

import json
import pickle
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from calibration.measure.journal import Journal
from calibration.measure.statistics import Sample
from tests.captured_steps import chain, checkpointed, residual
from tests.command_line import ROOT, vdnnsim
from tests.hostile.damage import Draw, as_yaml, changed, changed_table, damaged, written
from tests.recorded_traces import new_trace, old_trace
from tests.unit.recordings.snapshots import WHOLE
from vdnnsim.errors import InputError
from vdnnsim.hardware.copies import CopyRow, Direction, HostMemory, copy_table_text
from vdnnsim.report.folder import write_folder
from vdnnsim.report.run.folder import RUN_WRITER
from vdnnsim.study.points.compute import OUTCOME, Outcome
from vdnnsim.study.store import DATABASE, reading, writing

SCENARIO = {
    "schema_version": 1,
    "workload": {"network": "tiny_linear", "batch_size": 6, "precision": "float32", "optimizer": "momentum"},
    "hardware": "titan_x_maxwell",
    "policies": ["base(p)", "vdnn_all(m)", {"policy": "accumulate", "steps": 2}],
    "memory_model": "ideal",
    "execution": "eager",
}
STUDY = {
    "schema_version": 1,
    "scenario": SCENARIO | {"policies": ["base(p)", "vdnn_all(m)"]},
    "axes": {"link.bandwidth": ["8 GB/s", "16 GB/s"], "gpu.memory": {"from": "1 GiB", "to": "2 GiB", "factor": 2}},
    "where": ["link.bandwidth > 1 GB/s or policy == 'base(p)'"],
    "pictures": [
        {"name": "speed", "title": "Speed", "kind": "lines", "x": "gpu.memory_bytes", "y": "samples_per_s"}
        | {"by": "policy", "panels": "link.bandwidth_bytes_per_s", "where": {"fits": True}, "marks": {"here": "1 GiB"}}
    ],
}
SETTINGS = ("link.bandwidth=10 GB/s", "gpu.memory=20 MiB", "link.latency=1 ms", "workload.batch_size=7")


@pytest.fixture(autouse=True, scope="module")
def two_gibibytes() -> Iterator[None]:
    """Fail what takes more memory than that beside what the process has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def answered(folder: Path, command: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Run a command, which may write below `out` and `hw_profiles`; a refusal names the file or an option."""
    before = content(folder)
    done = vdnnsim(*command, folder=folder, status=None)
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr
    if done.returncode == 1:
        last = done.stderr.splitlines()[-1]
        assert done.stderr.count("vdnnsim: ") == 1
        assert last.startswith("vdnnsim: ")
        assert last.isprintable()
        assert len(last) < 3000
        assert any(name in last for name in names), last
    assert before.items() <= content(folder).items()


def profile(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / f"hw_profiles/{name}.yaml").read_text(encoding="utf-8"))
    read.pop("kernels", None)
    return read | {"name": "own"}


def one_of(draw: Draw, *commands: tuple[str, ...]) -> tuple[str, ...]:
    found: tuple[str, ...] = draw(st.sampled_from(commands))
    return found


def of_scenario(folder: Path, draw: Draw) -> tuple[str, ...]:
    written(folder / "s.yaml", SCENARIO, draw)
    return one_of(draw, ("check", "s.yaml"), ("whatif", "s.yaml", "--set", draw(st.sampled_from(SETTINGS))))


def of_study(folder: Path, draw: Draw) -> tuple[str, ...]:
    written(folder / "s.yaml", STUDY, draw)
    return one_of(draw, ("check", "s.yaml"), ("sweep", "s.yaml", "--status", "--out", "out"))


def on_own_machine(folder: Path, draw: Draw) -> tuple[str, ...]:
    (folder / "s.yaml").write_bytes(as_yaml(SCENARIO | {"hardware": "own.yaml"}))
    shown = ("list", "hardware", draw(st.sampled_from(("--tree", "--sources"))), "own.yaml")
    asked = ("whatif", "s.yaml", "--set", draw(st.sampled_from(SETTINGS)))
    return one_of(draw, ("check", "own.yaml"), ("check", "s.yaml"), shown, asked)


def of_profile(folder: Path, draw: Draw) -> tuple[str, ...]:
    """One with a fitted cost model, with datasheet peaks, or of several GPUs."""
    written(folder / "own.yaml", profile(draw(st.sampled_from(("titan_x_maxwell", "b200", "p100_x2")))), draw)
    return on_own_machine(folder, draw)


def of_kernel_table(folder: Path, draw: Draw) -> tuple[str, ...]:
    own = profile("titan_x_maxwell") | {"kernels": {"table": "own.kernels.csv", "tf32": False, "layout": "nchw"}}
    del own["cost_model"]
    (folder / "own.yaml").write_bytes(as_yaml(own))
    lines = (ROOT / "hw_profiles/rtx_3090.kernels.csv").read_text(encoding="utf-8").splitlines()[:40]
    (folder / "own.kernels.csv").write_bytes(draw(changed_table("\n".join(lines))))
    return on_own_machine(folder, draw)


def of_copies(folder: Path, draw: Draw) -> tuple[str, ...]:
    (folder / "own.yaml").write_bytes(as_yaml(profile("titan_x_maxwell") | {"copies": {"table": "own.copies.csv"}}))
    sizes = ((way, size) for way in Direction for size in range(4))
    rows = (CopyRow(way, HostMemory.PINNED, "", 4096 << at, 1e-5 * (at + 1), 0.01, 20, "") for way, at in sizes)
    (folder / "own.copies.csv").write_bytes(draw(changed_table(copy_table_text(rows))))
    return on_own_machine(folder, draw)


def of_step(folder: Path, draw: Draw) -> tuple[str, ...]:
    sound = json.loads(msgspec.json.encode(draw(st.sampled_from((chain(), residual(), checkpointed())))))
    written(folder / "own.step.json", sound, draw)
    asked = {"workload": {"step": "own.step.json"}, "hardware": "rtx_4090", "policies": ["base(p)", "checkpoint"]}
    (folder / "s.yaml").write_bytes(as_yaml({"schema_version": 1} | asked))
    smaller = ("whatif", "s.yaml", "--set", "gpu.memory=1 GiB")
    return one_of(draw, ("check", "own.step.json"), ("check", "s.yaml"), smaller)


def of_trace(folder: Path, draw: Draw) -> tuple[str, ...]:
    """One of the newest or the oldest format of the profiler."""
    written(folder / "own.json", draw(st.sampled_from((new_trace, old_trace)))(), draw)
    more = ((), ("--profile", "own", "--hardware", "t4"), ("--out", "out/own.step.json"))
    return ("read", "own.json", *draw(st.sampled_from(more)))


def of_snapshot(folder: Path, draw: Draw) -> tuple[str, ...]:
    data = pickle.dumps(draw(changed(WHOLE)))
    (folder / "own.pickle").write_bytes(draw(damaged(data) | st.just(data)))
    return ("read", "own.pickle", "--memory", "1 GiB")


def of_store(folder: Path, draw: Draw) -> tuple[str, ...]:
    (folder / "s.yaml").write_bytes(as_yaml(STUDY))
    outcome: Outcome = ("", "p", True, 0.1, *(7.0 for _ in OUTCOME[4:]), "")
    keys = [f"key{number}" for number in range(200)]
    with writing(folder / "out") as store:
        store.add([(key, {"n": key}, outcome) for key in keys], "1")
    (folder / "out" / DATABASE).write_bytes(draw(damaged((folder / "out" / DATABASE).read_bytes())))
    with suppress(InputError), reading(folder / "out") as found:
        assert all(row[0] or None not in row for row in found.outcomes(keys).values()), "a row is torn"
    return ("sweep", "s.yaml", "--status", "--out", "out")


KINDS = (*(of_scenario, of_study, of_profile, of_kernel_table, of_copies), *(of_step, of_trace, of_snapshot, of_store))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_changed_files_are_read_or_refused_in_one_line(
    kind: Callable[[Path, Draw], tuple[str, ...]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        command = kind(Path(name), data.draw)
        answered(Path(name), command, ("s.yaml", "own", "--set", DATABASE))


@given(st.data())
def test_a_changed_manifest_gives_no_file_of_others_away(data: st.DataObject) -> None:
    """Only files that the manifest of a folder of results names are overwritten."""
    theirs = {"results.csv": b"theirs", "report.md": b"theirs", "memory.png": b"theirs"}
    sound = {"format_version": 1, "scenario": {}, "results": [], "files": ["run.json", "results.csv", "trace_a.json"]}
    with TemporaryDirectory() as name:
        out = Path(name, "out")
        out.mkdir()
        for each, text in theirs.items():
            (out / each).write_bytes(text)
        written(out / "run.json", sound, data.draw)
        try:
            named = json.loads((out / "run.json").read_bytes())["files"]
        except (ValueError, KeyError, TypeError):
            named = []
        names = {each for each in named if isinstance(each, str)} if isinstance(named, list) else set()
        with suppress(InputError):
            write_folder(out, {"run.json": as_yaml(sound), "results.csv": b"ours"}, RUN_WRITER)
        changed_files = {each for each in theirs if not (out / each).exists() or (out / each).read_bytes() != b"theirs"}
        assert changed_files <= names


@given(st.data())
def test_a_damaged_journal_keeps_its_whole_lines(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        path = Path(name, "own.partial.jsonl")
        with Journal(path, {"device": "Fake"}) as journal:
            for number in range(5):
                journal.keep(f"key{number}", Sample(1.5, 0.0625, 7))
        sound = path.read_bytes()
        head = sound.index(b"\n") + 1
        lines = data.draw(damaged(sound[head:]))
        path.write_bytes(sound[:head] + lines)
        with Journal(path, {"device": "Fake"}) as journal:
            found = [journal.recall(f"key{number}", Sample) for number in range(5)]
        whole = set(sound[head:].split(b"\n")[:-1]) & set(lines.split(b"\n")[:-1])
        assert sum(each is not None for each in found) >= len(whole)
