"""What comes with vdnnsim, found from an empty folder; tables for programs; what works here."""

import csv
import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from tests.command_line import vdnnsim
from vdnnsim.cli import cli
from vdnnsim.errors import InputError
from vdnnsim.files.packaged import SCENARIOS, find_file, shipped_folder


def test_a_scenario_is_found_by_its_name(tmp_path: Path) -> None:
    done = vdnnsim("check", "vgg16_64", folder=tmp_path)
    assert "vgg16 (64)" in done.stdout


def test_a_name_that_there_is_not_gets_the_nearest(tmp_path: Path) -> None:
    done = vdnnsim("run", "vgg461", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean 'vgg416'?" in done.stderr


def test_a_network_is_no_scenario_and_a_folder_no_file(tmp_path: Path) -> None:
    done = vdnnsim("run", "VGG19", folder=tmp_path)
    assert done.stderr.startswith("vdnnsim: 'VGG19' is a network, expected a scenario that names it, as `workload: {ne")
    assert "vgg19_torchvision" in done.stderr
    (tmp_path / "vgg16_64").mkdir()
    assert "vgg16 (64)" in vdnnsim("check", "vgg16_64", folder=tmp_path).stdout


def test_what_is_a_file_or_could_be_none_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of this name in the working directory comes before a name; so does one in its own scenarios/."""
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
    """A second time refuses; the copied scenario finds the copied profile, which lies beside its folder."""
    assert vdnnsim("examples", "mine", folder=tmp_path).returncode == 0
    assert (tmp_path / "mine" / "hw_profiles" / "titan_x_maxwell.yaml").is_file()
    again = vdnnsim("examples", "mine", folder=tmp_path)
    assert (again.returncode, again.stderr.startswith("vdnnsim: mine/scenarios: is there already")) == (1, True)
    (tmp_path / "mine" / "hw_profiles" / "titan_x_maxwell.yaml").write_text("?", encoding="utf-8")
    checked = vdnnsim("check", "mine/scenarios/alexnet.yaml", folder=tmp_path)
    assert "mine/hw_profiles/titan_x_maxwell.yaml" in checked.stderr


def test_a_table_goes_to_standard_output_as_csv_or_json(tmp_path: Path) -> None:
    """Both have the same cells; of a family of networks most are empty."""
    table = list(csv.DictReader(StringIO(vdnnsim("list", "networks", "--csv", "-", folder=tmp_path).stdout)))
    mappings = json.loads(vdnnsim("list", "networks", "--json", folder=tmp_path).stdout)
    assert [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in mappings] == table
    assert isinstance(mappings[0]["parameters"], int)
    both = vdnnsim("list", "networks", "--json", "--csv", "-", folder=tmp_path)
    assert (both.returncode, both.stderr) == (
        1,
        "vdnnsim: --json: found beside --csv -, expected one of the two on standard output\n",
    )


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


def test_doctor_says_what_works_and_what_the_rest_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["vdnnsim.cli.catalog"], "find_spec", lambda name: None if name == "distributed" else name
    )
    told = {row["what"]: row["here"] for row in json.loads(vdnnsim("doctor", "--json", folder=tmp_path).stdout)}
    assert told["run, compare, whatif, sweep, claims"] == told["capture, run --model"] == "works"
    assert told["sweep --cluster"] == "pip install 'vdnnsim[cluster]'"
    assert told["torch"].endswith(("without CUDA", "for CUDA 13.0"))
