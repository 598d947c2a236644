"""The commands `list`, `check` and `doctor`, shipped files by name, completion, tables for programs."""

import csv
import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from tests.command_line import ROOT, csv_rows, vdnnsim
from tests.machines import shipped_server
from vdnnsim.cli import cli
from vdnnsim.dnn.networks import NETWORK_NAMES
from vdnnsim.errors import InputError
from vdnnsim.files.packaged import SCENARIOS, find_file, shipped_folder
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
    paths = [*(each.path for each in figures), "gpu.compute_capability"]
    assert paths == [name for name in rows if name != "kernels"]
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


def test_scenarios_by_name(tmp_path: Path) -> None:
    """The nearest name is suggested, for a network a scenario, for a model its option; a folder is no file."""
    near = vdnnsim("run", "vgg461", folder=tmp_path, status=1)
    assert near.stdout == ""
    assert "did you mean 'vgg416'?" in near.stderr
    done = vdnnsim("run", "VGG19", folder=tmp_path, status=1)
    assert done.stderr.startswith("vdnnsim: 'VGG19' is a network, expected a scenario that names it, as `workload: {ne")
    assert "vgg19_torchvision" in done.stderr
    # A network begins like this, alexnet_torchvision, but it is a scenario with a letter more.
    assert "did you mean 'alexnet'?" in vdnnsim("run", "alexnett", folder=tmp_path, status=1).stderr
    model = vdnnsim("run", "my_model.py:make", folder=tmp_path, status=1)
    assert "expected a scenario, or in its place `--model my_model.py:make --batch N " in model.stderr
    (tmp_path / "vgg16_64").mkdir()
    assert "vgg16 (64)" in vdnnsim("check", "vgg16_64", folder=tmp_path).stdout


def test_files_come_before_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_file("mine.yaml", (SCENARIOS,)) == Path("mine.yaml")
    assert find_file("vgg416", (SCENARIOS,)) == shipped_folder(SCENARIOS) / "vgg416.yaml"
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "vgg416.yaml").touch()
    assert find_file("vgg416", (SCENARIOS,)) == Path("scenarios/vgg416.yaml")
    (tmp_path / "vgg416").touch()
    assert find_file("vgg416", (SCENARIOS,)) == Path("vgg416")
    with pytest.raises(InputError, match="'nothing' is not a file"):
        find_file("nothing", (SCENARIOS,))


def test_a_shell_completes_commands_and_options() -> None:
    complete = BashComplete(cli, {}, "vdnnsim", "_VDNNSIM_COMPLETE")
    assert [each.value for each in complete.get_completions([], "mach")] == ["machines"]
    assert [each.value for each in complete.get_completions(["machines"], "--mo")] == ["--model", "--mode"]
    assert "_VDNNSIM_COMPLETE=bash_complete" in complete.source()


def test_examples_are_copied_once(tmp_path: Path) -> None:
    vdnnsim("examples", "mine", folder=tmp_path)
    assert (tmp_path / "mine" / "hw_profiles" / "titan_x_maxwell.yaml").is_file()
    again = vdnnsim("examples", "mine", folder=tmp_path, status=1)
    assert again.stderr.startswith("vdnnsim: mine/scenarios: exists already")
    (tmp_path / "mine" / "hw_profiles" / "titan_x_maxwell.yaml").write_text("?", encoding="utf-8")
    checked = vdnnsim("check", "mine/scenarios/alexnet.yaml", folder=tmp_path, status=1)
    assert "mine/hw_profiles/titan_x_maxwell.yaml" in checked.stderr


def test_a_table_goes_to_standard_output_as_csv_or_json(tmp_path: Path) -> None:
    table = list(csv.DictReader(StringIO(vdnnsim("list", "networks", "--csv", "-", folder=tmp_path).stdout)))
    mappings = json.loads(vdnnsim("list", "networks", "--json", folder=tmp_path).stdout)
    assert [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in mappings] == table
    assert isinstance(mappings[0]["parameters"], int)
    both = vdnnsim("list", "networks", "--json", "--csv", "-", folder=tmp_path, status=1)
    assert both.stderr.startswith("vdnnsim: --json: found beside --csv -")


def test_a_study_prints_its_results_for_programs(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        """\
schema_version: 1
scenario:
  {schema_version: 1, workload: {network: lenet, batch_size: 1}, hardware: titan_x_maxwell, policies: [base(p)]}
axes: {workload.batch_size: [1, 2]}
""",
        encoding="utf-8",
    )
    done = vdnnsim("sweep", "s.yaml", "--workers", "1", "--json", folder=tmp_path)
    assert [row["batch_size"] for row in json.loads(done.stdout)] == [1, 2]
    assert vdnnsim("sweep", "s.yaml", "--csv", "-", folder=tmp_path).stdout == (
        tmp_path / "reports" / "s" / "results.csv"
    ).read_text(encoding="utf-8")


def test_doctor_says_what_works_and_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules are imported, for one that is installed may be broken, or lack another."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name, code in (("torchvision", "raise RuntimeError('operator nms\\ndoes not exist')"), ("timm", "import tmm")):
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    here = {row["what"]: row["here"] for row in json.loads(vdnnsim("doctor", "--json", folder=tmp_path).stdout)}
    assert here["run, compare, whatif, sweep, claims"] == here["capture, run --model"] == "works"
    assert here["sweep --cluster"] == "pip install 'vdnnsim[cluster]'"
    assert here["models by name of torchvision"].endswith("RuntimeError: operator nms does not exist")
    assert "tmm is missing" in here["models by name of timm"]
    assert here["torch"].endswith(("without CUDA", "for CUDA 13.0"))


@pytest.mark.parametrize(
    ("words", "incomplete", "names"),
    [
        (["run"], "alex", ["alexnet"]),
        (["run"], "own", ["own.yaml"]),
        (["run", "--hardware"], "titan_x", ["titan_x_maxwell", "titan_xp"]),
        (["machines", "--policy"], "superneu", ["superneurons"]),
        (["compare", "--policies"], "base,vdnn_d", ["base,vdnn_dyn"]),
        (["run", "--model"], "gpt2-l", ["gpt2-large"]),
        (["run", "--model"], "my", ["my_model.py:"]),
        (["run", "--hardware"], "./mine", ["./mine"]),
    ],
)
def test_the_shell_completes_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], incomplete: str, names: list[str]
) -> None:
    """What no name begins with is left to the shell, as a file."""
    for name in ("own.yaml", "my_model.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    found = BashComplete(cli, {}, "vdnnsim", "_VDNNSIM_COMPLETE").get_completions(words, incomplete)
    assert [each.value for each in found] == names
    assert [each.type for each in found] == ["file" if incomplete.startswith(".") else "plain"] * len(names)
