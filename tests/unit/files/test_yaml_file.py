import hashlib
import math
import os
from pathlib import Path

import pytest

from tests.command_line import ROOT, vdnnsim
from tests.refusals import refusal
from vdnnsim.errors import InputError, ProfileError, ScenarioError
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.files.yaml_file import FileKind, kind_of, read_yaml


def write(folder: Path, data: str | bytes) -> Path:
    path = folder / "x.yaml"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def value_of(folder: Path, data: str | bytes) -> YamlValue:
    value = read_yaml(write(folder, data), ScenarioError).root.value
    assert isinstance(value, dict)
    return value["a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("1", 1), ("-007", -7), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("-.INF", -math.inf), ("true", True)),
        *(
            ("false", False),
            ("", None),
            ("~", None),
            ("null", None),
            ("'1'", "1"),
            ('"true"', "true"),
            ("none", "none"),
        ),
        *(("|\n  1\n", "1\n"), ("[]", []), ("{}", {}), ("[x, [y], {z: 1}]", ["x", ["y"], {"z": 1}])),
        ("vdnn_all(m)", "vdnn_all(m)"),
        # Words that YAML 1.1 turns into something else.
        *(
            (word, word)
            for word in ("no", "yes", "on", "off", "True", "12:30", "2016-10-15", "0x10", "0b1", "1_000", "=")
        ),
        # Python refuses to convert more than 4300 digits and needs quadratic time.
        *((digits, digits) for digits in ("1" * 5000, "0." + "1" * 5000)),
    ],
)
def test_plain_values(tmp_path: Path, text: str, expected: YamlValue) -> None:
    value = value_of(tmp_path, f"a: {text}")
    assert value == expected
    assert type(value) is type(expected)


def test_not_a_number_and_a_byte_order_mark(tmp_path: Path) -> None:
    assert math.isnan(float(str(value_of(tmp_path, "a: .nan"))))
    assert value_of(tmp_path, b"\xef\xbb\xbfa: 1") == 1
    file = read_yaml(write(tmp_path, "a: 1\n"), ScenarioError)
    assert (file.name, file.sha256) == (str(tmp_path / "x.yaml"), hashlib.sha256(b"a: 1\n").hexdigest())


BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"
BROKEN = "line 2, column 1: is not YAML: while parsing a flow node expected the node content, but found '<stream end>'"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("a: 1\n---\nb: 2", "line 2: found a second document (after ---), expected one"),
        (BOMB, "line 1: found anchor 'a', expected the value alone; anchors are not allowed"),
        ("a: *a", "line 1: found alias 'a', expected the value itself; aliases are not allowed"),
        ("a: !!binary eA==", "line 1: found tag 'tag:yaml.org,2002:binary'"),
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' is given twice"),
        ("? [a]\n: 1", "line 1: a key must be plain text"),
        ("*a : 1", "line 1: a key must be plain text"),
        ("&a b: 1", "line 1: a key must be plain text"),
        ("!!str b: 1", "line 1: a key must be plain text"),
        ("[" * 100_000, "line 1: nested deeper than 20 levels"),
        ("a: [\n", BROKEN),
        ("a: b: c", "line 1, column 5: is not YAML: mapping values are not allowed here"),
        ("%YAML 2.0\n---\na", "line 1, column 1"),
        ("%YAML 1." + "1" * 5000, "is not YAML: found a character code or a version that is out of range"),
        (r'a: "\UFFFFFFFF"', "is not YAML: found a character code or a version that is out of range"),
        (b"a: 1\nb: \x00", "line 2: found the character '\\x00', expected text"),
        ("a: 1\nb: \x80", "line 2: found the character '\\x80', expected text"),
        (r'a: "\ud800"', "line 1: found the character '\\ud800', expected text"),
        (b"\x7fELF\x02\x01\xff", "byte 6 is not UTF-8, expected a YAML file in UTF-8"),
        ("a: 1".encode("utf-16"), "byte 0 is not UTF-8, expected a YAML file in UTF-8"),
        ("[1" + ",1" * 130_000 + "]", "line 1: found more than 50000 values, expected a short YAML file"),
        ("#" * (256 * 1024 + 1), "is larger than 256 KiB, expected a short YAML file"),
    ],
)
def test_anything_but_strict_yaml_is_refused(tmp_path: Path, data: str | bytes, message: str) -> None:
    path = write(tmp_path, data)
    assert refusal(ProfileError, read_yaml, path, ProfileError).startswith(f"{path}: {message}")


def test_a_file_that_lies_beside_with_the_other_suffix_is_offered(tmp_path: Path) -> None:
    (tmp_path / "question.yaml").write_text("a: 1\n", encoding="utf-8")
    said = refusal(ScenarioError, read_yaml, tmp_path / "question.yml", ScenarioError)
    assert said.endswith(f"; did you mean {tmp_path / 'question.yaml'}?")
    assert "did you mean" not in refusal(ScenarioError, read_yaml, tmp_path / "other.yml", ScenarioError)


def test_twenty_levels_are_allowed(tmp_path: Path) -> None:
    nested = read_yaml(write(tmp_path, "[" * 20 + "]" * 20), ScenarioError).root.value
    for _ in range(19):
        assert isinstance(nested, list)
        (nested,) = nested
    assert nested == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.yaml", "cannot be read: no such file or directory"),
        (".", "is a folder, expected a short YAML file"),
        ("x.yaml/y.yaml", "cannot be read: not a directory"),
        ("n" * 300, "cannot be read: file name too long"),
        ("pipe", "is not a regular file, expected a short YAML file"),
    ],
)
def test_files_that_cannot_be_read_are_refused(tmp_path: Path, name: str, message: str) -> None:
    write(tmp_path, "a: 1")
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / name
    assert refusal(ScenarioError, read_yaml, path, ScenarioError).startswith(f"{path}: {message}")
    with pytest.raises(ScenarioError, match=r"^'a.*b\.yaml': cannot be read: no file can have this name$"):
        read_yaml(Path("a\0\nb.yaml"), ScenarioError)


PROFILE = str(ROOT / "hw_profiles" / "titan_x_maxwell.yaml")
SCENARIO = str(ROOT / "scenarios" / "alexnet.yaml")
STUDY = str(ROOT / "scenarios" / "studies" / "nvlink.yaml")


def test_the_configuration_of_a_model_is_no_scenario(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    stderr = vdnnsim("run", "config.json", folder=tmp_path, status=1).stderr
    assert stderr.endswith("this is the configuration of a model, expected a scenario, or --model config.json\n")


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
    done = vdnnsim(*arguments, folder=tmp_path, status=1)
    assert done.stdout == ""
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
    """A scenario with `gpu` for `gpus` is still one; without a key of any kind the reader decides."""
    value: YamlValue = dict.fromkeys(keys)
    assert kind_of(Entry("x.yaml", "", value, InputError)) is kind
    assert kind_of(Entry("x.yaml", "", [], InputError)) is None
