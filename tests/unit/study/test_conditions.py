"""Conditions that leave out points."""

from pathlib import Path

import numpy as np
import pytest

from vdnnsim.errors import StudyError
from vdnnsim.files.value import Entry
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.study.axes import study_keys
from vdnnsim.study.points.resolve import Value, shown
from vdnnsim.study.read import read_condition

TYPES = known_policies()
KEYS = {
    name: study_keys(TYPES, Path())[name]
    for name in ("policy", "gpu.memory", "workload.batch_size", "workload.network")
}
POINT: dict[str, Value] = {
    "policy": resolve_policy("vdnn_all(m)", TYPES),
    "gpu.memory": 16 * 2**30,
    "workload.batch_size": 32,
    "workload.network": "vgg16",
}


def holds(text: str) -> bool:
    condition = read_condition(Entry("s.yaml", "where", text, StudyError), KEYS)
    return bool(*condition({key: np.array([shown(value)], dtype=object) for key, value in POINT.items()}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu.memory == 16 GiB", True),
        ("gpu.memory >= 24GiB", False),
        ("not (gpu.memory >= 24GiB or workload.network != vgg16)", True),
        ("gpu.memory < 17 GB", False),  # 16 GiB are 17.18 GB
        ("workload.batch_size <= 32", True),
        ("workload.network == vgg16", True),
        ("workload.network != 'vgg16'", False),
        ("policy == 'vdnn_all(m)'", True),
        ('policy == "vdnn_all(p)"', False),
        ("not workload.batch_size > 32", True),
        ("not not workload.batch_size > 32", False),
        ("not " * 230 + "workload.batch_size > 32", False),
        # and binds closer than or: true or (false and false)
        ("workload.batch_size == 32 or gpu.memory == 1 GiB and gpu.memory == 1 GiB", True),
        ("(workload.batch_size == 32 or gpu.memory == 1 GiB) and gpu.memory == 1 GiB", False),
    ],
)
def test_a_point_stays_or_not(text: str, expected: bool) -> None:  # noqa: FBT001  # what is expected
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu.memry == 1 GiB", "did you mean 'gpu.memory'?"),
        ("gpu.memory = 1 GiB", "found 'gpu.memory = 1 GiB', expected comparisons"),
        ("gpu.memory", "found 'gpu.memory', expected comparisons"),
        ("gpu.memory == ", "found 'gpu.memory ==', expected comparisons"),
        ("not == 1", "found '== 1', expected comparisons"),
        ("gpu.memory == 1 GiB policy", "found '1 GiB policy'"),
        (
            "gpu.memory == 1 GiB (policy == 'base(p)')",
            "expected comparisons as `gpu.memory >= 24 GiB` with and, or, not",
        ),
        ("gpu.memory == 1 GiB ()", "expected comparisons"),
        ("gpu.memory == 1 GB/s", "found '1 GB/s', expected a number with one of the units"),
        ("gpu.memory == 1 GiB or", "expected comparisons"),
        ("(gpu.memory == 1 GiB", "expected comparisons"),
        ("gpu.memory == 1 GiB)", "expected comparisons"),
        ("policy < 'base(p)'", "found '<' after policy, which has no order; expected == or !="),
        ("__import__('os')", "found \"__import__('os')\", expected comparisons"),
        ("(" * 999, "expected comparisons"),
    ],
)
def test_what_is_no_condition_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(StudyError) as refused:
        holds(text)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
