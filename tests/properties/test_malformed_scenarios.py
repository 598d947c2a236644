"""Whatever a scenario or a profile holds, reading it works or answers with one line that names the file."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from vdnnsim.errors import InputError
from vdnnsim.hardware.profile import read_profile
from vdnnsim.scenario.read import read_scenario

ROOT = Path(__file__).parents[2]
SCENARIO: dict[str, Any] = {
    "schema_version": 1,
    "workload": {
        "network": "alexnet",
        "batch_size": 128,
        "element_type": "float32",
        "optimizer": "none",
        "mode": "training",
    },
    "hardware": "titan_x_maxwell",
    "policies": ["base(m)", "vdnn_dyn", {"policy": "vdnn_all", "algorithms": "m"}],
    "memory_model": "ideal",
    "pinned_memory": "arena",
}
# Unlike JSON, YAML has keys that are no text, dates, sets, bytes and numbers that are none.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary(max_size=20)
    | st.dates()
    | st.sampled_from(["", "0", "-1", "12 GiB", "12 gb", "0 s", "nan", "1e999 B", "../x", "a\nb", "x.yaml", "\u2028"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SCALARS, inner, max_size=4), max_leaves=12
)


def assert_answers_in_one_line(read: Callable[[Path], object], data: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        try:
            read(path)
        except InputError as failure:
            message = str(failure)
            assert message.splitlines() == [message]
            assert message.isprintable()
            assert message.startswith(f"{path}: ")
            assert len(message) < len(str(path)) + 2500


def as_yaml(value: object) -> bytes:
    return yaml.dump(value, allow_unicode=True).encode("utf-8", errors="surrogatepass")


@given(st.binary(max_size=300))
@example(b"")
@example(b"\xff\xfe")
@example(b"\x00" * 100)
@example(b"[" * 10_000)
@example(b"a: &a [*a, *a]")
@example(b"%YAML 1." + b"1" * 5000)
@example(b'a: "\\UFFFFFFFF"')
def test_any_bytes(data: bytes) -> None:
    assert_answers_in_one_line(read_scenario, data, "x.yaml")
    assert_answers_in_one_line(read_profile, data, "x.yaml")


@given(st.text(alphabet=st.sampled_from("a1:-?[]{},#&*!|>'\"%@`~.\\ux \n\t"), max_size=60))
def test_any_sequence_of_yaml_indicators(text: str) -> None:
    assert_answers_in_one_line(read_scenario, text.encode(), "x.yaml")


@given(VALUES)
def test_any_structure(value: object) -> None:
    assert_answers_in_one_line(read_scenario, as_yaml(value), "x.yaml")
    assert_answers_in_one_line(read_profile, as_yaml(value), "x.yaml")


@given(st.text(), st.text())
@example("algorithms", "\ud800")
@example("algorithms", "\a\u200b\n")
def test_any_option_of_a_policy(option: str, value: str) -> None:
    scenario = SCENARIO | {"policies": [{"policy": "vdnn_all", option: value}]}
    assert_answers_in_one_line(read_scenario, as_yaml(scenario), "x.yaml")
