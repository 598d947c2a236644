"""The commands `list` and `check`."""

from pathlib import Path

import pytest

from tests.command_line import ROOT, csv_rows, vdnnsim
from tests.machines import shipped_server
from vdnnsim.dnn.networks import NETWORK_NAMES
from vdnnsim.hardware.profile import shipped_profiles
from vdnnsim.policies.registry import known_policies


@pytest.mark.parametrize(
    ("what", "first", "count"),
    [
        ("networks", "alexnet", len(NETWORK_NAMES)),
        ("policies", "base", len(known_policies())),
        ("hardware", "titan_x", len(shipped_profiles())),
    ],
)
def test_list_prints_a_table_and_writes_it(tmp_path: Path, what: str, first: str, count: int) -> None:
    done = vdnnsim("list", what, "--csv", "list.csv", folder=tmp_path)
    assert first in done.stdout
    assert len(csv_rows(tmp_path / "list.csv")) == count


def test_a_list_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    done = vdnnsim("list", "nothing", folder=tmp_path, status=2)
    assert "'nothing' is not a list; expected one of hardware, networks, policies" in done.stderr
    done = vdnnsim("new", "scenario", folder=tmp_path, status=2)
    assert "'scenario' is not a file to fill in" in done.stderr
    assert "expected hardware" in done.stderr


def test_list_has_samples_links_and_sources(tmp_path: Path) -> None:
    vdnnsim("list", "networks", "--csv", "list.csv", folder=tmp_path)
    reads = {row["name"]: row["reads"] for row in csv_rows(tmp_path / "list.csv")}
    found = [reads[name] for name in ("gpt2_small", "lstm_cnn", "lstm_rnn", "vgg16", "resnetN")]
    assert found == ["1024 tokens", "16 frames", "512 elements", "1 image", "1 image"]
    # List draws the links of a profile.
    done = vdnnsim("list", "hardware", "--tree", "titan_x_maxwell", folder=tmp_path)
    assert done.stderr == ""
    assert "gpu0, 12.0 GiB  PCIe gen3 x16" in done.stdout
    vdnnsim("list", "hardware", "--tree", "titan_y", folder=tmp_path, status=1)
    vdnnsim("list", "hardware", "--tree", "titan_x_maxwell", "--csv", "x", folder=tmp_path, status=2)
    # A card has a row for all of its profiles, of which one may have measured kernels and no rates.
    (row,) = (line for line in vdnnsim("list", "hardware").stdout.splitlines() if "h100_80gb_hbm3" in line)
    assert "measured kernels, " in row
    assert "0 of 0" not in row
    # List has the source of every figure.
    done = vdnnsim("list", "hardware", "--sources", "a100_40gb", "--csv", "all.csv", folder=tmp_path)
    rows = {row["figure"]: row for row in csv_rows(tmp_path / "all.csv")}
    figures = shipped_server("a100_40gb").figures
    assert [each.path for each in figures] == [name for name in rows if name != "kernels"]
    assert (rows["gpu.multiprocessors"]["value"], rows["gpu.multiprocessors"]["origin"]) == ("108", "datasheet")
    assert rows["host.dispatch_forward"]["source"].startswith("a DGX A100, ")
    assert "a100_40gb.kernels.csv" in rows["kernels"]["source"]
    both = ("--sources", "a100_40gb", "--tree", "a100_40gb")
    vdnnsim("list", "hardware", *both, folder=tmp_path, status=2)


@pytest.mark.parametrize(
    ("cost_model", "expected"),
    [
        ("", "real ones take 1.1 to 3 times as long"),
        (", dram_fraction: ASSUMED", "of another card: how far"),
        (", dram_fraction: FITTED", ""),
    ],
)
def test_check_states_the_expected_error_of_a_profile(tmp_path: Path, cost_model: str, expected: str) -> None:
    whole = (ROOT / "hw_profiles" / "v100.yaml").read_text(encoding="utf-8")
    text = f"{{kind: roofline, launch_overhead_s: ASSUMED{cost_model}}}"
    for word in ("ASSUMED", "FITTED"):
        text = text.replace(word, f"{{value: 0.5, origin: {word.lower()}, source: a test}}")
    (tmp_path / "v100.yaml").write_text(f"{whole.partition('cost_model:')[0]}cost_model: {text}\n")
    done = vdnnsim("check", "v100.yaml", folder=tmp_path)
    assert done.stdout.count("\n") == 1
    assert expected in done.stdout
    assert bool(expected) == ("no kernel was timed" in done.stdout)
