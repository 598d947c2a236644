"""Scenarios on a machine with a kernel table, here by a known law."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import csv_rows, vdnnsim
from tests.machines import shipped_server
from vdnnsim.cost.kernel_table import KernelRow, KernelShape, kernel_table_text
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.hardware.write import kernels_beside, write_profile

ROOT = Path(__file__).parents[3]
SCENARIO = """
schema_version: 1
workload: {network: NETWORK, batch_size: 8, element_type: float32}
hardware: mine.yaml
policies: [base(p), vdnn_all(m)]
"""


def measured(network: str) -> list[KernelRow]:
    """Every kernel takes 1 ms for a GB and 10 us; `wide` convolutions are 1 us faster and want 1 MiB."""
    workload = Workload(build_network(network), 8)
    rows: dict[tuple[KernelShape, str], KernelRow] = {}
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            shape, nbytes = KernelShape.of(workload, layer, phase), workload.bytes_moved(layer, phase)
            for algorithm in ("pytorch", "wide") if shape.kind == "conv" else (ONLY,):
                wide = algorithm == "wide"
                rows[shape, algorithm] = KernelRow(
                    shape=shape,
                    algorithm=algorithm,
                    family="",
                    seconds=nbytes * 1e-12 + 10e-6 - 1e-6 * wide,
                    spread=0.01,
                    count=9,
                    workspace_bytes=2**20 * wide,
                    flop=workload.flop(layer, phase),
                    nbytes=nbytes,
                    origin=Origin.MEASURED,
                )
    return list(rows.values())


def calibrated(folder: Path, rows: list[KernelRow]) -> Server:
    """Write the machine with a table of its kernels and without a cost model."""
    titan = shipped_server("titan_x_maxwell")
    figures = tuple(figure for figure in titan.figures if not figure.path.startswith("cost_model"))
    path, table = folder / "mine.yaml", kernel_table_text(rows)
    server = replace(
        titan,
        name="mine",
        cost_model={},
        figures=figures,
        kernels=kernels_beside(path, table, tf32=False, channels_last=False),
        provenance=(("date", "2026-11-21"), ("torch", "2.11.0")),
    )
    write_profile(path, server, "measured by a law", table)
    return server


def results(folder: Path) -> list[dict[str, str]]:
    return csv_rows(folder / "out" / "results.csv")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A calibrated machine with scenarios of the measured network and of another one."""
    calibrated(tmp_path, measured("tiny_linear"))
    for network in ("tiny_linear", "tiny_residual"):
        (tmp_path / f"{network}.yaml").write_text(SCENARIO.replace("NETWORK", network), encoding="utf-8")
    return tmp_path


def test_a_measured_network_takes_the_sum_of_its_kernels(folder: Path) -> None:
    """base(p) copies nothing, so its iteration is its kernels one after the other, the faster algorithm of each.

    The host issues an operation in 5 us, less than any kernel takes, but cannot run ahead of the first one.
    """
    vdnnsim("run", "tiny_linear.yaml", "--out", "out", folder=folder)
    base, offloads = results(folder)
    workload = Workload(build_network("tiny_linear"), 8)
    times = {(row.shape, row.algorithm): row.seconds or 0.0 for row in measured("tiny_linear")}
    kernels_s = 0.0
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            shape = KernelShape.of(workload, layer, phase)
            kernels_s += times[shape, "wide" if shape.kind == "conv" else ONLY]
    assert kernels_s <= float(base["iteration_s"]) <= kernels_s + 20e-6
    assert float(offloads["iteration_s"]) > float(base["iteration_s"])
    assert int(offloads["offloaded_bytes"]) > 0


@pytest.mark.parametrize("network", ["tiny_linear", "tiny_residual"])
def test_the_kernel_table_is_an_input_whether_the_network_was_measured_or_not(folder: Path, network: str) -> None:
    vdnnsim("run", f"{network}.yaml", "--out", "out", folder=folder)
    manifest = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
    names = (f"{network}.yaml", "mine.yaml", "mine.kernels.csv")
    assert manifest["inputs"] == [
        {"name": name, "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()} for name in names
    ]
    assert manifest["hardware"]["kernels"]["table"] == "mine.kernels.csv"
    assert str(folder) not in json.dumps(manifest)


SLOW_COPIES = (
    "direction,host_memory,beside,copied_bytes,time_s,spread_fraction,timed_runs,note\n"
    "h2d,pinned,,4096,0.5,0.01,9,\nh2d,pinned,,8192,0.5,0.01,9,\n"
    "d2h,pinned,,4096,0.25,0.01,9,\nd2h,pinned,,8192,0.25,0.01,9,\n"
)


def test_measured_copies_time_offloads_and_are_an_input(folder: Path) -> None:
    """A copy of any size takes at least half a second to the GPU, and a quarter of one back."""
    (folder / "mine.copies.csv").write_text(SLOW_COPIES, encoding="utf-8")
    profile = folder / "mine.yaml"
    profile.write_text(profile.read_text(encoding="utf-8") + "copies: {table: mine.copies.csv}\n", encoding="utf-8")

    assert "; copies of 2 sizes h2d, 2 sizes d2h; date " in vdnnsim("check", "mine.yaml", folder=folder).stdout
    vdnnsim("run", "tiny_linear.yaml", "--out", "out", folder=folder)

    base, offloads = results(folder)
    assert float(base["iteration_s"]) < 0.1
    assert float(offloads["iteration_s"]) > 0.75
    manifest = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))
    assert manifest["inputs"][3:] == [
        {"name": "mine.copies.csv", "sha256": hashlib.sha256(SLOW_COPIES.encode()).hexdigest()}
    ]
    assert manifest["hardware"]["link"]["copies"]["table"] == "mine.copies.csv"


def test_check_counts_the_kernels_of_a_measured_profile(folder: Path) -> None:
    rows = measured("tiny_linear")
    shapes = len({row.shape for row in rows})
    shown = vdnnsim("check", "mine.yaml", folder=folder).stdout
    assert f"; {len(rows)} kernels of {shapes} shapes: {len(rows)} measured; date 2026-11-21" in shown
    assert "on mine, under base(p), vdnn_all(m)" in vdnnsim("check", "tiny_linear.yaml", folder=folder).stdout

    first, *others = rows
    calibrated(folder, [replace(first, seconds=None, count=0, note="out of memory"), *others])
    shown = vdnnsim("check", "mine.yaml", folder=folder).stdout
    assert f"shapes: {len(others)} measured, 1 without a time; " in shown


def test_a_cost_model_stands_in_for_an_element_type_that_was_not_measured(folder: Path) -> None:
    """Where the profile has none, the scenario is refused."""
    scenario, profile = folder / "tiny_linear.yaml", folder / "mine.yaml"
    scenario.write_text(scenario.read_text(encoding="utf-8").replace("float32", "float16"), encoding="utf-8")
    done = vdnnsim("run", "tiny_linear.yaml", folder=folder, status=1)
    assert "times no kernel in float16, only in float32" in done.stderr

    titan = (ROOT / "hw_profiles" / "titan_x_maxwell.yaml").read_text(encoding="utf-8")
    model = titan[titan.index("\ncost_model:") :]
    profile.write_text(profile.read_text(encoding="utf-8") + model, encoding="utf-8")
    vdnnsim("run", "tiny_linear.yaml", "--out", "out", folder=folder)
