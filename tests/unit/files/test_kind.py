from pathlib import Path

import pytest

from tests.command_line import ROOT, vdnnsim
from vdnnsim.errors import InputError
from vdnnsim.files.kind import FileKind, kind_of
from vdnnsim.files.value import Entry, YamlValue

PROFILE = str(ROOT / "hw_profiles" / "titan_x_maxwell.yaml")
SCENARIO = str(ROOT / "scenarios" / "alexnet.yaml")
STUDY = str(ROOT / "scenarios" / "studies" / "nvlink.yaml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", STUDY), f"{STUDY}: this is a study, expected a scenario; vdnnsim sweep computes it"),
        (("run", PROFILE), f"{PROFILE}: this is a hardware profile, expected a scenario; a scenario names it as its "),
        (("sweep", SCENARIO), f"{SCENARIO}: this is a scenario, expected a study; vdnnsim run replays it"),
        (("sweep", PROFILE), f"{PROFILE}: this is a hardware profile, expected a study; a scenario names it as its "),
        (("list", "hardware", "--tree", SCENARIO), f"{SCENARIO}: this is a scenario, expected a hardware profile; "),
    ],
)
def test_a_file_of_another_kind_is_called_what_it_is(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = vdnnsim(*arguments, folder=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"vdnnsim: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        (("workload", "gpu"), FileKind.SCENARIO),
        (("scenario", "axis"), FileKind.STUDY),
        (("axes", "workload"), FileKind.STUDY),
        (("gpu", "lnk"), FileKind.PROFILE),
        (("network",), None),
    ],
)
def test_a_key_that_is_mistyped_makes_no_other_kind(keys: tuple[str, ...], kind: FileKind | None) -> None:
    """A scenario with `gpu` for `gpus` is one still, and what has no key of any kind is left to its reader."""
    value: YamlValue = dict.fromkeys(keys)
    assert kind_of(Entry("x.yaml", "", value, InputError)) is kind
    assert kind_of(Entry("x.yaml", "", [], InputError)) is None
