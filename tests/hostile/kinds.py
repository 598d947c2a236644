"""Kinds of input files, each with a valid example and the commands that read it."""

import json
import pickle
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import yaml

from calibration.measure.journal import Journal
from calibration.measure.statistics import Sample
from tests.captured_steps import chain, checkpointed, residual
from tests.hostile.attack import Command, Kind
from tests.hostile.mutations import Tree, as_yaml, mutated_bytes, mutated_database, mutated_table, mutated_tree
from tests.recorded_traces import new_trace, old_trace
from tests.unit.recordings.snapshots import WHOLE
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.engine.host import Execution
from vdnnsim.hardware.copies import CopyRow, Direction, HostMemory, copy_table_text
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.registry import known_policies
from vdnnsim.report.folder import write_folder
from vdnnsim.report.run.folder import RUN_WRITER
from vdnnsim.study.points.compute import OUTCOME, Outcome
from vdnnsim.study.store import DATABASE, reading, writing
from vdnnsim.units import Precision

PROFILES: Final = Path(__file__).parents[2] / "hw_profiles"
SCENARIO: Final = {
    "schema_version": 1,
    "workload": {"network": "tiny_linear", "batch_size": 6}
    | {"precision": "float32", "optimizer": "momentum", "mode": "training"},
    "hardware": "titan_x_maxwell",
    "policies": ["base(p)", "vdnn_all(m)", {"policy": "accumulate", "steps": 2}],
    "memory_model": "ideal",
    "pinned_memory": "arena",
    "execution": "eager",
}
STUDY: Final = {
    "schema_version": 1,
    "scenario": SCENARIO | {"policies": ["base(p)", "vdnn_all(m)"]},
    "axes": {"link.bandwidth": ["8 GB/s", "16 GB/s"], "gpu.memory": {"from": "1 GiB", "to": "2 GiB", "factor": 2}},
    "where": ["link.bandwidth > 1 GB/s or policy == 'base(p)'"],
    "pictures": [
        {"name": "speed", "title": "Speed", "kind": "lines", "x": "gpu.memory_bytes", "y": "images_per_s"}
        | {"by": "policy", "panels": "link.bandwidth_bytes_per_s", "where": {"fits": True}, "marks": {"here": "1 GiB"}}
    ],
}
_SLOW: Final = ("vdnn_dyn", "staggered_swap")
WORDS: Final = (
    ("alexnet", "tiny_linear", "tiny_forked", "tiny_residual", "resnet18", "resnetN", "wrn_16_4", "lenet"),
    (
        *("base(p)", "vdnn_all(m)", "accumulate(steps=2)", "checkpoint(segments=1000)", "vdnn_all(p, chunk=64 MiB)"),
        *(name for name in known_policies() if name not in _SLOW),
    ),
    tuple(each.value for each in MemoryModel),
    tuple(each.value for each in Precision),
    tuple(each.value for each in Optimizer),
    tuple(each.value for each in Mode),
    tuple(each.value for each in Execution),
    tuple(each.value for each in PinnedMemory),
    ("titan_x_maxwell", "p100_x2", "rtx_4090", "h100_x8", "k40m", "no_such_card"),
    ("lines", "heat_map", "pareto"),
    ("gpu.memory", "gpu.context", "link.latency", "host.memory", "gpus", "workload.batch_size", "gradients"),
    ("images_per_s", "gpu.memory_bytes", "iteration_s", "fits", "refusal", "stall_s", "policy"),
    ("step", "count", "factor", "from", "to", "value", "where", "by", "panels"),
    ("gpu.memory > 1 GiB", "policy != 'base(p)'", "gpus == 1", "not (link.bandwidth < 9 GB/s)"),
    ("socket", "switch", "gpu", "host memory", "shared", "split_duplex", "lossy_duplex"),
    ("measured", "fitted", "assumed", "paper", "datasheet"),
)
_SETTINGS: Final = ("link.bandwidth=10 GB/s", "gpu.memory=20 MiB", "gpu.compute_speed=1000", "workload.batch_size=7")


def _write(folder: Path, name: str, sound: Tree, draw: Random) -> None:
    """Write a mutated file as YAML or JSON; one in ten is mutated as bytes too."""
    data = as_yaml(mutated_tree(sound, draw, WORDS))
    (folder / name).write_bytes(mutated_bytes(data, draw) if draw.random() < 0.1 else data)


def scenario(folder: Path, draw: Random) -> tuple[str, Command]:
    """A scenario on a small network."""
    _write(folder, "s.yaml", SCENARIO, draw)
    return "s.yaml", _asked("s.yaml", draw)


def _asked(name: str, draw: Random) -> Command:
    chance = draw.random()
    if chance < 0.75:
        return Command(("check", name))
    if chance < 0.94:
        return Command(("whatif", name, "--set", draw.choice(_SETTINGS)))
    if chance < 0.98:
        return Command(("max-batch", name))
    return Command(("run", name, "--out", "out"), writes=("out",))


@cache
def _profile(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((PROFILES / f"{name}.yaml").read_text(encoding="utf-8"))
    return read


@cache
def _table(name: str, rows: int) -> str:
    lines = (PROFILES / f"{name}.kernels.csv").read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[: rows + 1]) + "\n"


COPIES: Final = copy_table_text(
    CopyRow(way, HostMemory.PINNED, "", 4096 << size, 1e-5 * (size + 1), 0.01, 20, "")
    for way in Direction
    for size in range(4)
)


def _machine(folder: Path, profile: Tree) -> None:
    """Write the profile `own.yaml` and a scenario on it."""
    (folder / "own.yaml").write_bytes(as_yaml(profile))
    (folder / "s.yaml").write_bytes(as_yaml(SCENARIO | {"hardware": "own.yaml"}))


def _reading(draw: Random) -> Command:
    commands = (
        *(("check", "own.yaml"), ("check", "own.yaml"), ("check", "s.yaml"), ("max-batch", "s.yaml")),
        *(("list", "hardware", option, "own.yaml") for option in ("--tree", "--sources")),
        *(("whatif", "s.yaml", "--set", setting) for setting in ("gpu.memory=1 GiB", "link.latency=1 ms")),
    )
    if draw.random() < 0.02:
        return Command(("run", "s.yaml", "--out", "out"), writes=("out",))
    return Command(draw.choice(commands))


def profile(folder: Path, draw: Random) -> tuple[str, Command]:
    """A profile with a fitted cost model, with datasheet peaks, or of several GPUs."""
    sound = _profile(draw.choice(("titan_x_maxwell", "b200", "p100_x2", "rtx_4090"))) | {"name": "own"}
    sound.pop("kernels", None)
    _machine(folder, sound)
    _write(folder, "own.yaml", sound, draw)
    return "own.yaml", _reading(draw)


def kernel_table(folder: Path, draw: Random) -> tuple[str, Command]:
    """The kernel table of a profile without a cost model."""
    sound = _profile("titan_x_maxwell") | {"name": "own"}
    del sound["cost_model"]
    _machine(folder, sound | {"kernels": {"table": "own.kernels.csv", "tf32": False, "layout": "nchw"}})
    text = mutated_table(_table("rtx_3090", 40), draw)
    (folder / "own.kernels.csv").write_text(text, encoding="utf-8", errors="surrogatepass")
    return "own", _reading(draw)


def copies(folder: Path, draw: Random) -> tuple[str, Command]:
    """The copy table of a profile."""
    _machine(folder, _profile("titan_x_maxwell") | {"name": "own", "copies": {"table": "own.copies.csv"}})
    (folder / "own.copies.csv").write_text(mutated_table(COPIES, draw), encoding="utf-8", errors="surrogatepass")
    return "own", _reading(draw)


def study(folder: Path, draw: Random) -> tuple[str, Command]:
    """A grid of eight points."""
    _write(folder, "s.yaml", STUDY, draw)
    if draw.random() < 0.85:
        return "s.yaml", Command(draw.choice((("check", "s.yaml"), ("sweep", "s.yaml", "--status", "--out", "out"))))
    return "s.yaml", Command(("sweep", "s.yaml", "--workers", "1", "--out", "out"), writes=("out",))


FILES: Final = {"results.csv": b"theirs", "report.md": b"theirs", "memory.png": b"theirs"}


def manifest(folder: Path, draw: Random) -> tuple[str, Command]:
    """The manifest of a folder of results; only files that it names may be overwritten."""
    out = folder / "out"
    sound = {"format_version": 1, "scenario": {}, "results": [], "files": ["run.json", "results.csv", "trace_a.json"]}
    out.mkdir()
    for name, content in FILES.items():
        (out / name).write_bytes(content)
    (folder / "above.csv").write_bytes(b"theirs")
    _write(out, "run.json", sound, draw)
    ours = {"run.json": json.dumps(sound).encode(), "results.csv": b"ours"}
    try:
        named = json.loads((out / "run.json").read_bytes())["files"]
    except (ValueError, KeyError, TypeError):
        named = []
    allowed = ("out/run.json", *(f"out/{name}" for name in FILES if isinstance(named, list) and name in named))
    return "out", Command(call=partial(write_folder, out, ours, RUN_WRITER), writes=allowed)


def store(folder: Path, draw: Random) -> tuple[str, Command]:
    """The database of a study; rows that can be read must be whole."""
    out = folder / "out"
    outcome: Outcome = ("", "p", True, 0.1, *(7.0 for _ in OUTCOME[4:]), "")
    keys = [f"key{number}" for number in range(200)]
    points: list[tuple[str, dict[str, object], Outcome]] = [(key, {"n": key}, outcome) for key in keys]
    with writing(out) as kept:
        kept.add(points, "1")
    mutated_database(out / DATABASE, draw)

    def read() -> None:
        with reading(out) as found:
            rows = found.outcomes(keys)
        assert all(row[0] or None not in row for row in rows.values()), "a row is torn"

    (folder / "s.yaml").write_bytes(as_yaml(STUDY))
    if draw.random() < 0.5:
        return DATABASE, Command(call=read)
    return DATABASE, Command(("sweep", "s.yaml", "--status", "--out", "out"))


def journal(folder: Path, draw: Random) -> tuple[str, Command]:
    """The journal of a calibration; every whole line must be kept."""
    path = folder / "own.partial.jsonl"
    with Journal(path, {"device": "Fake"}) as kept:
        for number in range(5):
            kept.keep(f"key{number}", Sample(1.5, 0.0625, 7))
    path.write_bytes(mutated_bytes(path.read_bytes(), draw))

    def read() -> None:
        with Journal(path, {"device": "Fake"}) as found:
            for number in range(5):
                found.recall(f"key{number}", Sample)

    return path.name, Command(call=read, writes=(path.name,))


_STEPS: Final = tuple(json.loads(msgspec.json.encode(step)) for step in (chain(), residual(), checkpointed()))


def step(folder: Path, draw: Random) -> tuple[str, Command]:
    """A captured step, looked at and replayed."""
    _write(folder, "own.step.json", draw.choice(_STEPS), draw)
    asked = {"workload": {"step": "own.step.json"}, "hardware": "rtx_4090", "policies": ["base(p)", "checkpoint"]}
    (folder / "s.yaml").write_bytes(as_yaml({"schema_version": 1} | asked))
    commands = (("check", "own.step.json"), ("check", "s.yaml"), ("whatif", "s.yaml", "--set", "gpu.memory=1 GiB"))
    return "own.step.json", Command(draw.choice(commands))


def trace(folder: Path, draw: Random) -> tuple[str, Command]:
    """A trace of a profiler, of the newest and of the oldest format."""
    _write(folder, "trace.json", draw.choice((new_trace, old_trace))(), draw)
    more = draw.choice(
        ((), ("--csv", "t.csv"), ("--profile", "own", "--hardware", "t4"), ("--out", "out/own.step.json"))
    )
    return "trace.json", Command(("read", "trace.json", *more), writes=("t.csv", "out", "hw_profiles"))


def snapshot(folder: Path, draw: Random) -> tuple[str, Command]:
    """A memory snapshot, mutated before and after it is pickled."""
    data = pickle.dumps(mutated_tree(WHOLE, draw, WORDS) if draw.random() < 0.8 else WHOLE)
    (folder / "own.pickle").write_bytes(mutated_bytes(data, draw) if draw.random() < 0.4 else data)
    return "own.pickle", Command(("read", "own.pickle", "--memory", "1 GiB"))


KINDS: Final = (
    Kind("scenario", scenario, 3, names=("--set",)),
    Kind("profile", profile, 3, names=("--set", "own", "s.yaml")),
    Kind("kernel table", kernel_table, 2, names=("--set", "s.yaml")),
    Kind("copies", copies, 1, names=("--set", "s.yaml")),
    Kind("study", study, 3),
    Kind("run.json", manifest, 1),
    Kind("store", store, 2, names=("s.yaml",)),
    Kind("journal", journal, 1),
    Kind("step", step, 2, names=("s.yaml", "--set")),
    Kind("trace", trace, 2, names=("own.step.json",)),
    Kind("snapshot", snapshot, 2),
)
