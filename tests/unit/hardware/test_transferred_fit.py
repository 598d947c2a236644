"""Copied and extended profiles: parameters fitted to another GPU are carried over, and no longer fitted."""

from pathlib import Path

import pytest

from tests.unit.hardware.test_profile import write
from tests.unit.hardware.toy_profile import TOY, figure, refusal
from vdnnsim.cost.rate_origins import model_origin
from vdnnsim.cost.trust import Basis, basis_of
from vdnnsim.files.packaged import PROFILES, shipped_folder
from vdnnsim.hardware.figures import with_number
from vdnnsim.hardware.profile import find_profile, load_profile, read_profile
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.hardware.write import template

TITAN = shipped_folder(PROFILES) / "titan_x_maxwell.yaml"


def fitted(server: Server) -> int:
    return sum(each.origin is Origin.FITTED for each in server.figures if each.path.startswith("cost_model."))


def copy(folder: Path, name: str, *changes: tuple[str, str]) -> Server:
    text = TITAN.read_text(encoding="utf-8").replace("name: titan_x_maxwell", f"name: {name}", 1)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return read_profile(path)


def test_a_copy_of_the_same_card_keeps_its_fit(tmp_path: Path) -> None:
    """Seven of its ten parameters were fitted; no kernel time depends on memory."""
    assert fitted(read_profile(TITAN)) == 7
    assert fitted(copy(tmp_path, "mine", ("value: 12 GiB", "value: 24 GiB"))) == 7


@pytest.mark.parametrize(
    "change",
    [
        ("NVIDIA GeForce GTX Titan X (Maxwell)\n", "NVIDIA GeForce RTX 5090\n"),
        ("value: 7 TFLOP/s", "value: 104.8 TFLOP/s"),
        ("value: 336 GB/s", "value: 1792 GB/s"),
        ("value: 0.8242", "value: 0.95"),
    ],
)
@pytest.mark.parametrize("name", ["rtx_5090", "titan_x_maxwell"])
def test_a_copy_with_other_rates_is_carried_over(tmp_path: Path, name: str, change: tuple[str, str]) -> None:
    """Another card, another peak, or a parameter that no row gave: whatever the copy is called."""
    server = copy(tmp_path, name, change)
    assert fitted(server) == 0
    assert model_origin(server) is Origin.ASSUMED
    assert basis_of(server) is Basis.CARRIED_OVER


def test_a_study_that_changes_a_peak_changes_the_origin() -> None:
    server = read_profile(TITAN)
    assert fitted(with_number(server, "gpu.memory", 2**34)) == 7
    faster = with_number(server, "gpu.dram_bandwidth", 1e12)
    assert fitted(faster) == 0
    assert {each.path: each.text for each in faster.figures}["gpu.dram_bandwidth"] == "1 TB/s"
    assert with_number(server, "gpu.dram_bandwidth", server.gpu.dram_bytes_per_s) is server


def extension(name: str, **sections: object) -> dict[str, object]:
    return {"schema_version": 1, "name": name, "description": "a toy", "extends": "toy", **sections}


def test_an_extension_inherits_what_it_does_not_state(tmp_path: Path) -> None:
    """The toy has 10 KiB; its fit holds where only memory differs, and on another GPU no more."""
    measured = {"granule": figure("1 B") | {"origin": "measured"}}
    write(
        tmp_path,
        TOY | {"gpu": {**TOY["gpu"], **measured}, "cost_model": {"efficiency": figure(0.5) | {"origin": "fitted"}}},
    )
    more = load_profile(write(tmp_path, extension("more", gpu={"memory": figure("20 KiB")}), "more"))
    assert (more.server.gpu.memory_bytes, more.server.gpu.name) == (20_480, "Toy GPU")
    assert fitted(more.server) == 1
    assert [name.rpartition("/")[2] for name, _ in more.sources] == ["more.yaml", "toy.yaml"]
    assert more.server.link.name == TOY["link"]["name"]
    faster = read_profile(write(tmp_path, extension("faster", link={"h2d": figure("100 GB/s")}), "faster"))
    assert faster.link.name == "link of faster"
    other = read_profile(write(tmp_path, extension("other", gpu={"name": "Another"}), "other"))
    assert fitted(other) == 0
    assert other.figures[-1].source == "carried over from toy, there fitted: a page"
    assert {each.path: each.origin for each in more.server.figures}["gpu.granule"] is Origin.MEASURED
    assert {each.path: each.origin for each in other.figures}["gpu.granule"] is Origin.ASSUMED
    without = read_profile(write(tmp_path, extension("without", cost_model=None), "without"))
    assert without.cost_model == {}
    # A profile does not extend itself.
    write(tmp_path, extension("one") | {"extends": "two"}, "one")
    path = write(tmp_path, extension("two") | {"extends": "one"}, "two")
    assert "'two' extends this profile itself" in refusal(path)


def test_templates_are_filled_in_and_found(tmp_path: Path) -> None:
    """Line 4 begins the section, 6 has a figure without an origin, 7 one that a person has to fill in."""
    path = tmp_path / "hole.yaml"
    path.write_text(
        "schema_version: 1\nname: hole\ndescription: d\ngpu:\n  name: x\n  memory: {value: 1 GiB, source: s}\n"
        "  granule: {value: ..., origin: datasheet, source: s}\nlink: {name: wire}\n",
        encoding="utf-8",
    )
    assert refusal(path).rpartition("missing are ")[2].split("; ") == [
        *("gpu.granule (line 7): value", "gpu (line 4): dram_bandwidth, multiprocessors, peak"),
        *("gpu.memory (line 6): origin", "link (line 8): h2d, d2h, latency"),
        "host (memory, issue, pin_latency, pin_bandwidth)",
    ]
    # Every figure is what its comment has as an example.
    path = tmp_path / "mine.yaml"
    text = template("mine")
    path.write_text(text, encoding="utf-8")
    assert "missing are line" in refusal(path)
    lines = []
    for line in text.splitlines():
        example = line.rpartition(", as ")[2] if ", as " in line else "60 TFLOP/s"
        lines.append(line.replace("value: ...", f"value: {example}").replace("...", "x"))
    path.write_text("\n".join(lines), encoding="utf-8")
    server = read_profile(path)
    assert server.gpu.memory_bytes == 16 * 2**30
    assert basis_of(server) is Basis.DATASHEET
    # A card is found however it is written.
    for name in ("RTX 4090", "NVIDIA GeForce RTX 4090", "rtx-4090", "4090 rtx", "4090"):
        assert find_profile(name, tmp_path).name == "rtx_4090.yaml"
