"""Profiles of calibrated machines: kernels, provenance, interference on the link, nothing that identifies anybody."""

import copy
import hashlib
from pathlib import Path

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


def message_of(folder: Path, key_path: str, value: object) -> str:
    return refusal(write(folder, with_value(MEASURED, key_path, value)))


def test_a_measured_profile_names_its_table_and_how_it_was_measured(tmp_path: Path) -> None:
    server = read_profile(write(tmp_path, MEASURED))
    digest = hashlib.sha256(TABLE).hexdigest()
    assert server.kernels == MeasuredKernels(tmp_path / "mine.kernels.csv", digest, tf32=False, channels_last=True)
    assert server.provenance == (("date", "2026-11-21"), ("torch", "2.11.0"))
    assert server.cost_model == {}
    # A link may state what disturbs its copies.
    content = copy.deepcopy(MEASURED)
    stated = {"pageable_h2d": "2 B/s", "pageable_d2h": "1 B/s", "both_directions": 0.75, "beside_compute": 1}
    content["link"] |= {key: figure(value) for key, value in stated.items()} | {"beside_memory_bound": figure(0.5)}
    link = read_profile(write(tmp_path, content)).link
    assert (link.pageable_h2d_bytes_per_s, link.pageable_d2h_bytes_per_s) == (2.0, 1.0)
    assert (link.both_directions_fraction, link.beside_compute_fraction) == (0.75, 1.0)
    assert link.beside_memory_bound_fraction == 0.5
    # A missing table is named.
    message = message_of(tmp_path, "kernels.table", "other.csv")
    assert message.startswith(f"kernels.table: {tmp_path / 'other.csv'}: cannot be read")


def test_a_table_that_leads_elsewhere_is_not_read(tmp_path: Path) -> None:
    """A symbolic link out of the folder is refused, one to a table beside the profile is not."""
    (tmp_path / "elsewhere").mkdir()
    path = write(tmp_path / "elsewhere", MEASURED)
    (tmp_path / "note.txt").write_text("a secret")
    table = path.with_name("mine.kernels.csv")
    table.rename(path.with_name("other.csv"))
    table.symlink_to(tmp_path / "note.txt")
    assert refusal(path).startswith(f"kernels.table: {table} is a link to another folder")
    table.unlink()
    table.symlink_to("other.csv")
    assert read_profile(path).kernels is not None


@pytest.mark.parametrize(
    ("key_path", "value", "message"),
    [
        ("kernels.table", "../mine.kernels.csv", "kernels.table: found '../mine.kernels.csv'"),
        ("kernels.table", "tables/mine.csv", "kernels.table: found 'tables/mine.csv'"),
        ("kernels.tf32", "no", "kernels.tf32: found 'no'"),
        ("kernels.layout", "nchv", "kernels.layout: 'nchv' is not a layout"),
        ("kernels", {"table": "a.csv"}, "kernels: 'tf32' is missing"),
        ("link.both_directions", figure(1.5), "link.both_directions.value: found 1.5"),
        ("provenance", ["x"], "provenance: found a list"),
        ("provenance.Torch", "2", "provenance: 'Torch' is not a name"),
        ("provenance.torch", 2.11, "provenance.torch: found 2.11"),
        ("description", "the card of ann@example.org", "description: looks like an e-mail address"),
        ("provenance.hostname", "thunder", "provenance.hostname: looks like the name of a machine"),
        ("provenance.command", f"calibrate --out {HOME}/ann/h200.yaml", "provenance.command: looks like a path into"),
    ],
)
def test_a_wrong_measured_profile_is_refused(tmp_path: Path, key_path: str, value: object, message: str) -> None:
    assert message_of(tmp_path, key_path, value).startswith(message)


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
def test_identifying_text_is_found(name: str, text: str, what: str) -> None:
    assert what_identifies(name, text) == what


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpu", "NVIDIA H200, sm_90, 132 multiprocessors, 139.8 GiB"),
        ("driver", "580.65.06"),
        ("cudnn", "9.19.0 (91900)"),
        ("clocks", "1980 MHz of 1980 MHz, memory 3201 MHz"),
        ("date", "2026-11-21"),
        ("command", "vdnnsim calibrate --gpu 0 --network vgg16 --out hw_profiles/h200.yaml"),
    ],
)
def test_descriptions_of_machines_are_not_taken_for_identities(name: str, text: str) -> None:
    assert what_identifies(name, text) is None
