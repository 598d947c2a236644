import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.refusals import refusal as refused_with
from tests.unit.hardware.toy_profile import TOY, figure, refusal, with_value
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.profile import find_profile, load_profile, profile_of_card, read_profile
from vdnnsim.hardware.server import Figure, Gpu, Host, Link, Origin, Power
from vdnnsim.units import ElementType

ROOT = Path(__file__).parents[3]
DESCRIBED = TOY | {"cost_model": {"efficiency": figure(0.5)}}


def write(folder: Path, content: object, name: str = "toy") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def changed(key_path: str, value: object) -> dict[str, Any]:
    return with_value(DESCRIBED, key_path, value)


def test_a_profile_becomes_a_server_in_si_units(tmp_path: Path) -> None:
    """10 KiB are 10240 bytes, 1 MB is 10^6, 1 GiB/s is 2^30 B/s, 5 ms are 0.005 s."""
    server = read_profile(write(tmp_path, DESCRIBED))
    assert server.name == "toy"
    peaks = {ElementType.FLOAT32: 1000.0, ElementType.BFLOAT16: 2000.0}
    assert server.gpu == Gpu("Toy GPU", 10_240, peaks, 100.0, 2, 512)
    assert server.link == Link("wire", 3.0, 4.0, 0.005)
    assert server.host == Host(1_000_000, 0.0, 6 * 1e-6, 2.0**30)
    assert server.cost_model == {"efficiency": 0.5}
    # `maxwell` where none is named.
    parameters = {"kind": "roofline", "launch_overhead_s": figure(1e-6)}
    named = read_profile(write(tmp_path, TOY | {"cost_model": parameters}))
    assert (named.cost_model_kind, named.cost_model) == ("roofline", {"launch_overhead_s": 1e-6})
    assert read_profile(write(tmp_path, DESCRIBED)).cost_model_kind == "maxwell"
    table = read_profile(write(tmp_path, TOY | {"cost_model": {"kind": "table"}}))
    assert (table.cost_model_kind, table.cost_model) == ("table", {})
    # A machine that was only measured has no such figure.
    assert read_profile(write(tmp_path, changed("link.peak", figure("5 B/s")))).link.peak_bytes_per_s == 5.0
    assert read_profile(write(tmp_path, DESCRIBED)).link.peak_bytes_per_s is None
    # 2 pJ are 2e-12 J, 4 nJ are 4e-9 J; a board without a limit never reaches it.
    assert read_profile(write(tmp_path, DESCRIBED)).power is None
    stated = read_profile(write(tmp_path, changed("power", POWER)))
    assert stated.power == Power(9.0, 2e-12, 3e-12, 4e-9, limit_watts=math.inf)
    assert [each.path for each in stated.figures[-4:]] == ["power.idle", "power.flop", "power.dram", "power.link"]
    limited = read_profile(write(tmp_path, changed("power", POWER | {"limit": figure("0.1 kW")})))
    assert limited.power is not None
    assert limited.power.limit_watts == 100.0
    # A context of 2 KiB and three handles of 512 B are 3.5 KiB; a profile that says nothing of them has none.
    content = changed("gpu.context", figure("2 KiB"))
    content["gpu"]["handle"] = figure("512 B")
    gpu = read_profile(write(tmp_path, content)).gpu
    assert gpu.framework_bytes(handles=3) == 3584
    assert read_profile(write(tmp_path, DESCRIBED)).gpu.framework_bytes(handles=3) == 0
    # The hash is that of the file.
    path = write(tmp_path, DESCRIBED)
    profile = load_profile(path)
    assert (profile.file, profile.description) == (str(path), "a toy")
    assert profile.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_figures_stand_as_the_file_states_them(tmp_path: Path) -> None:
    figures = read_profile(write(tmp_path, DESCRIBED)).figures
    assert Figure("gpu.memory", "10 KiB", Origin.DATASHEET, "a page") in figures
    assert [figure.path for figure in figures] == [
        *("gpu.memory", "gpu.dram_bandwidth", "gpu.multiprocessors", "gpu.granule"),
        *("gpu.peak.bfloat16", "gpu.peak.float32"),
        *("link.h2d", "link.d2h", "link.latency"),
        *("host.memory", "host.issue", "host.pin_latency", "host.pin_bandwidth"),
        "cost_model.efficiency",
    ]


POWER = {"idle": figure("9 W"), "flop": figure("2 pJ/FLOP"), "dram": figure("3 pJ/B"), "link": figure("4 nJ/B")}


@pytest.mark.parametrize(
    ("key_path", "value", "message"),
    [
        ("schema_version", 2, "schema_version: found 2, expected 1"),
        ("name", "titan", "name: found 'titan'"),
        ("description", "", "description: found ''"),
        ("gpus", {}, "'gpus' is not a key"),
        ("link", "pcie", "link: found 'pcie', expected a mapping with the keys name, h2d, d2h"),
        (
            "link.h2d",
            "3 B/s",
            (
                "link.h2d: found '3 B/s', expected origin (datasheet, measured, fitted, paper, assumed) and source as "
                'well: h2d: {value: 3 B/s, origin: ..., source: "..."}'
            ),
        ),
        ("link.h2d", "3 GB", "link.h2d: found '3 GB', expected a number with one of the units B/s"),
        ("link.h2d", True, "link.h2d: found true, expected a mapping with the keys value, origin, source"),
        ("link.h2d", {"value": "3 B/s", "origin": "paper"}, "is not complete"),
        ("link.h2d.source", " ", "link.h2d.source: found ' '"),
        ("link.h2d.origin", "papers", "link.h2d.origin: 'papers' is not an origin"),
        ("link.h2d.value", 3, "link.h2d.value: found 3, expected a number with one of the units B/s, kB/s"),
        ("link.h2d.value", "3 GB", "link.h2d.value: found '3 GB'"),
        ("link.h2d.value", "0 B/s", "link.h2d.value: found '0 B/s', expected from 1 B/s to 1e18 B/s"),
        ("link.h2d.value", "1e19 B/s", "link.h2d.value: found '1e19 B/s'"),
        ("link.h2d.value", "-3 B/s", "link.h2d.value: found '-3 B/s'"),
        ("link.h2d.value", None, "link.h2d.value: found nothing"),
        ("link.h2d.value", "9" * 100, f"link.h2d.value: found '{'9' * 80}...'"),
        ("link.latency.value", "11 s", "link.latency.value: found '11 s', expected from 0 s to 10 s"),
        ("gpu.memory.value", "0.3 B", "gpu.memory.value: found '0.3 B', expected from 1 B to 1 EiB"),
        ("gpu.memory.value", "2e6 TiB", "gpu.memory.value: found '2e6 TiB'"),
        ("gpu.granule.value", "2 GiB", "gpu.granule.value: found '2 GiB', expected from 1 B to 1 GiB"),
        ("gpu.multiprocessors.value", 0, "gpu.multiprocessors.value: found 0, expected from 1 to 1000000"),
        ("gpu.multiprocessors.value", 1.5, "gpu.multiprocessors.value: found 1.5"),
        ("gpu.multiprocessors.value", float("nan"), "gpu.multiprocessors.value: found 'nan'"),
        ("gpu.peak.float32.value", "7 TFLOPS", "gpu.peak.float32.value: found '7 TFLOPS'"),
        ("gpu.peak", {}, "gpu.peak: found an empty mapping"),
        ("gpu.peak.fp16", figure("1 FLOP/s"), "gpu.peak: 'fp16' is not a key"),
        ("power", {}, "power: 'idle' is missing"),
        ("power", POWER | {"idle": figure("200 kW")}, "power.idle.value: found '200 kW'"),
        ("cost_model", None, "cost_model: found nothing, expected a mapping of parameters"),
        ("cost_model.kind", 7, "cost_model.kind: found 7"),
        ("cost_model.efficiency.value", "x", "cost_model.efficiency.value: found 'x', expected a plain number"),
        ("cost_model.efficiency.value", 1e19, "cost_model.efficiency.value: found 1e+19, expected from 0 to 1000000"),
        ("cost_model.Big One", figure(1), "cost_model: 'Big One' is not a parameter's name"),
    ],
)
def test_a_wrong_profile_is_refused(tmp_path: Path, key_path: str, value: object, message: str) -> None:
    assert refusal(write(tmp_path, changed(key_path, value))).startswith(message)


def test_a_profile_is_a_mapping(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, [1])).startswith(
        "found a list, expected a mapping with the keys schema_version, name"
    )


def test_the_titan_x_is_the_one_of_the_paper() -> None:
    """MICRO 2016, II-C and IV-B: 12 GB, read as 12 x 2^30; 7 TFLOPS; 336 GB/s; copies at 12.8 of 16 GB/s; 64 GB."""
    server = read_profile(ROOT / "hw_profiles" / "titan_x_maxwell.yaml")
    gpu, link = server.gpu, server.link
    assert (gpu.memory_bytes, gpu.flop_per_s[ElementType.FLOAT32], gpu.dram_bytes_per_s) == (12 * 2**30, 7e12, 336e9)
    assert (gpu.multiprocessors, gpu.granule_bytes) == (24, 512)
    assert (link.h2d_bytes_per_s, link.d2h_bytes_per_s, link.peak_bytes_per_s) == (12.8e9, 12.8e9, 16e9)
    assert server.host.memory_bytes == 64 * 2**30


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, beside a folder `scenarios`; both empty."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenarios").mkdir()
    return tmp_path


@pytest.mark.usefixtures("elsewhere")
def test_a_name_is_looked_up_from_the_scenario_outwards() -> None:
    """Each step adds a profile of the same name at a place that is searched earlier."""
    folder = Path("scenarios/deep")
    assert find_profile("titan_x_maxwell", folder) == ROOT / "hw_profiles" / "titan_x_maxwell.yaml"
    for place in ("hw_profiles", "scenarios/deep/hw_profiles", "scenarios/hw_profiles"):
        path = write(Path(place), DESCRIBED)
        assert find_profile("toy", folder) == path


def test_a_profile_beside_the_folder_of_the_scenario(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(elsewhere / "hw_profiles", DESCRIBED)
    monkeypatch.chdir(elsewhere / "scenarios")
    assert find_profile("toy", Path()) == Path("../hw_profiles/toy.yaml")
    assert find_profile("toy", Path("..")) == Path("../hw_profiles/toy.yaml")
    assert find_profile("toy", elsewhere / "scenarios") == elsewhere / "hw_profiles" / "toy.yaml"


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA A30", None),
        ("Tesla V100-PCIE-32GB", "v100"),
        ("Tesla V100-SXM2-32GB", None),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("NVIDIA GeForce GTX TITAN X", "titan_x_maxwell"),
        ("NVIDIA TITAN X (Pascal)", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
    ],
)
def test_a_card_is_found_by_the_name_that_its_driver_gives_it(card: str, name: str | None) -> None:
    """Whether it says NVIDIA, Tesla or neither; another socket, memory or chip is another card."""
    found = profile_of_card(card)
    assert (found and found.server.name) == name


def test_a_path_is_one_from_the_scenario_or_from_the_working_directory(elsewhere: Path) -> None:
    write(elsewhere / "mine", DESCRIBED)
    assert find_profile("mine/toy.yaml", Path("scenarios")) == Path("mine/toy.yaml")
    write(elsewhere / "scenarios" / "mine", DESCRIBED)
    assert find_profile("mine/toy.yaml", Path("scenarios")) == Path("scenarios/mine/toy.yaml")
    assert find_profile(str(elsewhere / "mine" / "toy.yaml"), Path("scenarios")) == elsewhere / "mine" / "toy.yaml"


@pytest.mark.usefixtures("elsewhere")
def test_a_profile_that_does_not_exist_is_refused() -> None:
    def refusal(name: str) -> str:
        return refused_with(ProfileError, find_profile, name, Path("scenarios"))

    assert refusal("no.yaml") == "'no.yaml' is not a file; looked for scenarios/no.yaml and no.yaml"
    assert refusal("n" * 300 + ".yaml").startswith(f"'{'n' * 80}...' is not a file; looked for ")
    looked_in = "; others are looked for in hw_profiles, scenarios/hw_profiles"
    for name in ("titan_x_maxwel", "titan_x_max/../well", "titan_x_maxw\nell", "titan_x_ma\0xwell"):
        message = refusal(name)
        assert message.startswith(f"{name!r} is not a hardware profile; did you mean 'titan_x_maxwell'? (")
        assert "`vdnnsim list hardware`" in message
        assert message.endswith(looked_in)
    assert "did you mean 'gtx_1080ti'?" in refusal("gtx")
    assert "only cards of NVIDIA are covered" in refusal("mi300x")


@pytest.mark.parametrize(("name", "mib"), [("k40m", 11580), ("titan_z", 6082)])
def test_the_machines_of_the_layrub_paper(name: str, mib: int) -> None:
    """TACO 2018, Table 4 and 5.1; copies of a K40m reach 10.5 of 16 GB/s."""
    server = read_profile(ROOT / "hw_profiles" / f"{name}.yaml")

    assert server.gpu.memory_bytes == mib * 2**20
    assert server.link.h2d_bytes_per_s == 10.526e9
    assert server.link.peak_bytes_per_s == 16e9


def test_the_sxm_card_is_offered_first() -> None:
    """`h100` begins names of six profiles; a machine with several GPUs and cards of PCIe are others."""
    assert "did you mean 'h100_sxm'?" in refused_with(ProfileError, find_profile, "h100", Path())
