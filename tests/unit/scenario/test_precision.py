"""The keys `precision` and `element_type` of a scenario."""

from pathlib import Path

import pytest

from tests.refusals import refusal
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.errors import ScenarioError
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.units import ElementType, Precision


def scenario(folder: Path, workload: str, hardware: str = "titan_x_maxwell") -> Scenario:
    path = folder / "x.yaml"
    path.write_text(
        f"schema_version: 1\nworkload: {{network: lenet, batch_size: 4, {workload}}}\n"
        f"hardware: {hardware}\npolicies: [pytorch(p)]\n",
        encoding="utf-8",
    )
    return read_scenario(path)


@pytest.mark.parametrize(
    ("precision", "weights", "autocast"),
    [
        ("float32", ElementType.FLOAT32, None),
        ("bfloat16", ElementType.BFLOAT16, None),
        ("float16", ElementType.FLOAT16, None),
        ("amp_bfloat16", ElementType.FLOAT32, ElementType.BFLOAT16),
        ("amp_float16", ElementType.FLOAT32, ElementType.FLOAT16),
    ],
)
def test_a_precision_decides_storage_and_casts(
    tmp_path: Path, precision: str, weights: ElementType, autocast: ElementType | None
) -> None:
    """Casts are layers of mixed precision alone."""
    workload = scenario(tmp_path, f"precision: {precision}").workload
    assert workload.precision is Precision(precision)
    assert (workload.element_type, workload.graph.autocast) == (weights, autocast)
    assert any(layer.kind is LayerKind.CAST for layer in workload.graph.layers) == (autocast is not None)


def test_tf32_stores_float32(tmp_path: Path) -> None:
    """The table of this profile was measured in TF32; it states no peak of it."""
    workload = scenario(tmp_path, "precision: tf32", "a100_40gb").workload
    assert (workload.precision, workload.element_type) == (Precision.TF32, ElementType.TF32)
    assert workload.map_bytes(0) == scenario(tmp_path, "precision: float32").workload.map_bytes(0)


@pytest.mark.parametrize("each", ["float32", "float16", "bfloat16"])
def test_an_element_type_is_still_read(tmp_path: Path, each: str) -> None:
    assert scenario(tmp_path, f"element_type: {each}").workload == scenario(tmp_path, f"precision: {each}").workload
    assert scenario(tmp_path, "mode: training").workload.precision is Precision.FLOAT32, "where neither is stated"


@pytest.mark.parametrize(
    ("workload", "hardware", "place", "fragment"),
    [
        ("precision: float32, element_type: float32", "titan_x_maxwell", "element_type", "beside 'precision'"),
        ("precision: amp_float", "titan_x_maxwell", "precision", "did you mean 'amp_float16'? (float32, tf32, "),
        ("element_type: amp_float16", "titan_x_maxwell", "element_type", "'float16'? (float32, tf32, float16,"),
        ("precision: tf32", "titan_x_maxwell", "precision", "titan_x_maxwell.yaml states no gpu.peak for 'tf32'"),
        # Its kernels were measured, but not in TF32.
        ("precision: tf32", "h200_without_tf32", "precision", "states no gpu.peak for 'tf32'"),
        ("element_type: tf32", "titan_x_maxwell", "element_type", "states no gpu.peak for 'tf32'"),
        ("precision: bfloat16", "k40m", "precision", "states no gpu.peak for 'bfloat16', expected one of float32"),
    ],
)
def test_a_wrong_precision_is_refused(tmp_path: Path, workload: str, hardware: str, place: str, fragment: str) -> None:
    said = refusal(ScenarioError, scenario, tmp_path, workload, hardware)
    assert said.startswith(f"{tmp_path}/x.yaml: workload.{place}: ")
    assert fragment in said


def test_a_card_without_a_narrow_type_stands_in_with_float32_and_says_so(tmp_path: Path) -> None:
    """The Tesla K40m computes in float32 alone; the Titan X states a rate of bfloat16."""
    without, with_it = (
        run_scenario(scenario(tmp_path, "precision: amp_bfloat16", hardware))
        for hardware in ("k40m", "titan_x_maxwell")
    )
    assert without.kernels.gap == "k40m states no gpu.peak for bfloat16; the rate of float32 stands in"
    assert with_it.kernels.gap == ""
