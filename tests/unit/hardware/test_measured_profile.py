"""What a calibrated machine's profile says beyond a described one's: kernels, provenance, more of the link."""

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.hardware.toy_profile import TOY, figure, refusal, with_value
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.sections import what_identifies
from vdnnsim.hardware.server import MeasuredKernels

MEASURED = TOY | {
    "name": "mine",
    "kernels": {"table": "mine.kernels.csv", "tf32": False, "layout": "nhwc"},
    "provenance": {"date": "2026-11-21", "torch": "2.11.0"},
}
TABLE = b"any bytes"
HOME = "/" + "home"  # in one piece it would be a path of one machine


def write(folder: Path, content: object) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    (folder / "mine.kernels.csv").write_bytes(TABLE)
    return path


def changed(key_path: str, value: object) -> dict[str, Any]:
    return with_value(MEASURED, key_path, value)


def message_of(folder: Path, content: object) -> str:
    return refusal(write(folder, content))


def test_a_profile_names_the_table_of_its_kernels_and_what_it_was_measured_with(tmp_path: Path) -> None:
    server = read_profile(write(tmp_path, MEASURED))
    digest = hashlib.sha256(TABLE).hexdigest()
    assert server.kernels == MeasuredKernels(tmp_path / "mine.kernels.csv", digest, tf32=False, channels_last=True)
    assert server.provenance == (("date", "2026-11-21"), ("torch", "2.11.0"))
    assert server.cost_model == {}


def test_a_table_that_leads_elsewhere_is_not_read(tmp_path: Path) -> None:
    """A link to a note of somebody's: no word of it is printed. One to a table beside it is none of its kind."""
    (tmp_path / "elsewhere").mkdir()
    path = write(tmp_path / "elsewhere", MEASURED)
    (tmp_path / "note.txt").write_text("a secret")
    table = path.with_name("mine.kernels.csv")
    table.rename(path.with_name("other.csv"))
    table.symlink_to(tmp_path / "note.txt")
    assert refusal(path) == (f"kernels.table: {table} is a link to another folder, expected a file beside the profile")
    table.unlink()
    table.symlink_to("other.csv")
    assert read_profile(path).kernels is not None


def test_a_link_may_state_what_disturbs_its_copies(tmp_path: Path) -> None:
    content = copy.deepcopy(MEASURED)
    content["link"] |= {
        "pageable_h2d": figure("2 B/s"),
        "pageable_d2h": figure("1 B/s"),
        "both_directions": figure(0.75),
        "beside_compute": figure(1),
        "beside_memory_bound": figure(0.5),
    }
    link = read_profile(write(tmp_path, content)).link
    assert (link.pageable_h2d_bytes_per_s, link.pageable_d2h_bytes_per_s) == (2.0, 1.0)
    assert (link.both_directions_fraction, link.beside_compute_fraction, link.beside_memory_bound_fraction) == (
        *(0.75, 1.0, 0.5),
    )


@pytest.mark.parametrize(
    ("key_path", "value", "message"),
    [
        ("schema_version", 2, "schema_version: found 2, expected 1, the version that this vdnnsim reads"),
        ("kernels.table", "../mine.kernels.csv", "kernels.table: found '../mine.kernels.csv'"),
        ("kernels.table", "tables/mine.csv", "kernels.table: found 'tables/mine.csv'"),
        ("kernels.tf32", "no", "kernels.tf32: found 'no', expected true or false"),
        ("kernels.layout", "nchv", "kernels.layout: 'nchv' is not a layout; did you mean 'nchw'? (nchw, nhwc)"),
        ("kernels", {"table": "a.csv"}, "kernels: 'tf32' is missing; required are table, tf32, layout"),
        ("link.both_directions", figure(1.5), "link.both_directions.value: found 1.5, expected from 0.001 to 1"),
        ("provenance", ["x"], "provenance: found a list, expected a mapping of names and what is said of each"),
        ("provenance.Torch", "2", "provenance: 'Torch' is not a name, expected small letters, digits and _"),
        ("provenance.torch", 2.11, "provenance.torch: found 2.11"),
        ("description", "the card of ann@example.org", "description: looks like an e-mail address"),
        ("provenance.hostname", "thunder", "provenance.hostname: looks like the name of a machine"),
        (
            "provenance.command",
            f"calibrate --out {HOME}/ann/h200.yaml",
            "provenance.command: looks like a path into somebody's home, expected nothing that identifies anybody",
        ),
    ],
)
def test_a_wrong_measured_profile_is_refused(tmp_path: Path, key_path: str, value: object, message: str) -> None:
    assert message_of(tmp_path, changed(key_path, value)).startswith(message)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "other.csv"
    message = message_of(tmp_path, changed("kernels.table", "other.csv"))
    assert message == f"kernels.table: {missing}: cannot be read: no such file or directory"


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("gpu_serial", "x", "one specimen of a machine"),
        ("user_name", "x", "the name of a person"),
        ("log", "C:\\Users\\ann", "a path into somebody's home"),
        ("python", f"{HOME}/ann/venv/bin/python", "a path into somebody's home"),
        ("by", "ann@example.org", "an e-mail address"),
        ("gpu", "GPU-8f2f0a1e-3b7c-4d5e-9f00-0123456789ab", "a UUID"),
        ("card", "00:1a:2B:3c:4d:5e", "the address of a network card"),
        ("board", "1324521021833", "a serial number"),
        ("board", "Serial Number of the board", "a serial number"),
    ],
)
def test_what_identifies_somebody_is_found(name: str, text: str, what: str) -> None:
    assert what_identifies(name, text) == what


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpu", "NVIDIA H200, sm_90, 132 multiprocessors, 139.8 GiB"),
        ("driver", "580.65.06"),
        ("cudnn", "9.19.0 (91900)"),
        ("torch", "2.11.0+cu130"),
        ("link", "PCIe gen5 x16"),
        ("clocks", "1980 MHz of 1980 MHz, memory 3201 MHz"),
        ("date", "2026-11-21"),
        ("command", "vdnnsim calibrate --gpu 0 --network vgg16 --out hw_profiles/h200.yaml"),
    ],
)
def test_what_describes_a_machine_is_no_identity(name: str, text: str) -> None:
    assert what_identifies(name, text) is None
