"""The values of an axis, listed or as a range."""

from pathlib import Path

import pytest

from tests.refusals import refusal
from vdnnsim.errors import StudyError
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.policies.registry import known_policies
from vdnnsim.study.axes import read_axis, study_keys
from vdnnsim.study.study import Axis

GB = 10**9
GIB = 2**30


def axis(name: str, value: YamlValue) -> Axis:
    parent = Entry("s.yaml", "axes", {name: value}, StudyError)
    return read_axis(
        name, Entry("s.yaml", f"axes.{name}", value, StudyError), parent, study_keys(known_policies(), Path())
    )


def test_a_list_is_converted_to_si_units() -> None:
    found = axis("link.bandwidth", ["16 GB/s", "500 MB/s"])
    assert found.column == "link.bandwidth_bytes_per_s"
    assert found.values == (16e9, 0.5e9)


@pytest.mark.parametrize(
    ("name", "value", "values"),
    [
        # 16 x 2^i up to 100: 16, 32, 64; 128 is above.
        ("workload.batch_size", {"from": 16, "to": 100, "factor": 2}, (16, 32, 64)),
        # 8, 12, 16, 20 GiB; 24 is above.
        ("gpu.memory", {"from": "8 GiB", "to": "23 GiB", "step": "4 GiB"}, (8 * GIB, 12 * GIB, 16 * GIB, 20 * GIB)),
        # Four values with both ends: every third part of 9.
        ("gpu.compute_speed", {"from": 1, "to": 10, "count": 4}, (1.0, 4.0, 7.0, 10.0)),
        # The end is reached although 0.1 x 3 is not 0.3 in binary.
        ("gpu.compute_speed", {"from": 0.1, "to": 0.3, "step": 0.1}, (0.1, 0.2, 0.1 + 2 * 0.1)),
        ("gpus", {"from": 3, "to": 3, "step": 1}, (3,)),
    ],
)
def test_ranges(name: str, value: YamlValue, values: tuple[float, ...]) -> None:
    assert axis(name, value).values == values


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("link.bandwidths", ["1 GB/s"], "did you mean 'link.bandwidth'?"),
        ("link.bandwidth", [], "found an empty list, expected a list of values, or a range"),
        ("link.bandwidth", ["1 GiB"], "found '1 GiB', expected a number with one of the units"),
        ("gpu.memory", ["16 GiB", "16384 MiB"], "is in this axis already"),
        ("policy", ["vdnn_al"], "did you mean 'vdnn_all'?"),
        ("policy", {"from": 1, "to": 2, "step": 1}, "expected a list of values"),
        ("hardware", ["h20"], "did you mean 'h200'?"),
        ("workload.network", ["vgg17x"], "is not a network"),
        ("workload.network", [16], "found 16, expected text"),
        ("gpus", {"from": 1, "to": 4, "step": 1, "count": 4}, "found step and count of step, factor and count"),
        ("gpus", {"from": 1, "to": 4}, "found none of step, factor and count"),
        ("gpus", {"from": 4, "to": 1, "step": 1}, "found 1, expected no less than 4"),
        ("gpus", {"from": 1, "to": 4, "factor": 1}, "found 1, expected a factor above 1"),
        ("workload.batch_size", {"from": 1, "to": 2, "count": 4}, "expected a count with which all values are whole"),
        ("host.issue", {"from": "0 s", "to": "1 s", "factor": 2}, "found a factor of a range from zero"),
        ("host.issue", {"from": "0 s", "to": "1 s", "step": "0 s"}, "expected a step above zero"),
        ("host.issue", {"from": "0 s", "to": "1 s", "step": "1 ns"}, "expected a range of at most 1000000 values"),
        ("host.issue", {"from": "1 s", "to": "1 s", "count": 2}, "expected two ends that differ"),
        ("cost_model.tile_load_flop", {"from": 1e-300, "to": 1e6, "factor": 10}, "is 1e+306 times its start, expected"),
        ("gpu.compute_speed", [0], "found 0, expected a factor from 0.001 to 1000"),
    ],
)
def test_wrong_axes_are_refused_in_one_line(name: str, value: YamlValue, message: str) -> None:
    said = refusal(StudyError, axis, name, value)
    assert message in said
    assert said.startswith("s.yaml: axes")
