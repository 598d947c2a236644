"""The key `pictures` of a study file."""

from pathlib import Path

import pytest

from tests.refusals import refusal
from vdnnsim.errors import StudyError
from vdnnsim.files.yaml_file import read_yaml
from vdnnsim.report.study_picture import Mark, PictureKind, StudyPicture, factors
from vdnnsim.study.pictures import read_pictures

COLUMNS = ("policy", "hardware", "gpu.compute_speed", "link.bandwidth_bytes_per_s", "fits", "performance_ratio")
LINES = "{name: speed, title: Speed, kind: lines, x: link.bandwidth_bytes_per_s, y: performance_ratio"


def read(tmp_path: Path, text: str, columns: tuple[str, ...] = COLUMNS) -> tuple[StudyPicture, ...]:
    path = tmp_path / "study.yaml"
    path.write_text(f"pictures: {text}\n", encoding="utf-8")
    return read_pictures(read_yaml(path, StudyError).root.members(("pictures",))["pictures"], columns)


def test_a_picture_with_all_of_its_keys(tmp_path: Path) -> None:
    """12.8 GB/s are 12.8e9 bytes a second; a value that is true reads as results.csv has it."""
    (picture,) = read(
        tmp_path,
        f"[{LINES}, subtitle: all, x_label: link, by: policy, panels: hardware, "
        "where: {fits: true, policy: [a, b]}, marks: {PCIe gen3: 12.8 GB/s, NVLink-C2C: 346 GB/s}}]",
    )
    assert picture == StudyPicture(
        name="speed",
        title="Speed",
        kind=PictureKind.LINES,
        x="link.bandwidth_bytes_per_s",
        y="performance_ratio",
        subtitle="all",
        x_label="link",
        by="policy",
        panels="hardware",
        where=(("fits", ("true",)), ("policy", ("a", "b"))),
        marks=(Mark("PCIe gen3", 12.8e9), Mark("NVLink-C2C", 346e9)),
    )


def test_columns_may_have_the_names_of_version_0_1(tmp_path: Path) -> None:
    """`images_per_s` is `samples_per_s` now, in expressions and with `server_` before it; `pool_bytes` reserved."""
    (picture,) = read(
        tmp_path,
        "[{name: old, title: Old, kind: heat_map, x: max_memory_bytes, y: batch_size / images_per_s, by: pool_bytes, "
        "value: server_images_per_s, where: {runtime_bytes: 1}}]",
        ("allocated_bytes", "batch_size", "samples_per_s", "server_samples_per_s", "reserved_bytes", "process_bytes"),
    )
    assert (picture.x, picture.y, picture.by) == ("allocated_bytes", "batch_size / samples_per_s", "reserved_bytes")
    assert (picture.value, picture.where) == ("server_samples_per_s", (("process_bytes", ("1",)),))


@pytest.mark.parametrize("mark", ["[0, 0]", "{}", "x" * 2000, "~"])
def test_a_mark_that_is_no_quantity_is_refused_in_a_short_line(tmp_path: Path, mark: str) -> None:
    """An attack had a message of 9,000 characters."""
    with pytest.raises(StudyError, match=r"marks\.here: found .*, expected a number of bytes per second") as refused:
        read(tmp_path, f"[{LINES}, marks: {{here: {mark}}}}}]")
    assert len(str(refused.value)) < len(str(tmp_path)) + 250


@pytest.mark.parametrize(
    ("x", "mark", "value"),
    [
        ("gpu.memory_bytes", "12 GiB", 12 * 2**30),
        ("iteration_s", "20 ms", 0.02),
        ("gpu.peak.float32_flop_per_s", "7 TFLOP/s", 7e12),
        ("samples_per_s", "100", 100.0),
        ("batch_size", "64", 64.0),
        ("7e12 * gpu.compute_speed / link.bandwidth_bytes_per_s", "547", 547.0),
    ],
)
def test_a_mark_has_the_unit_of_its_axis(tmp_path: Path, x: str, mark: str, value: float) -> None:
    columns = (*COLUMNS, x) if " " not in x else COLUMNS
    (picture,) = read(
        tmp_path, f"[{{name: a, title: t, kind: lines, x: {x}, y: fits, marks: {{here: {mark}}}}}]", columns
    )
    assert picture.marks == (Mark("here", value),)


def test_an_expression_is_read_from_left_to_right() -> None:
    parts = factors("7e12 * gpu.compute_speed / link.h2d")
    assert [(part.column, part.number, part.divides) for part in parts] == [
        ("7e12", 7e12, False),
        ("gpu.compute_speed", None, False),
        ("link.h2d", None, True),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "pictures: found an empty list, expected a list of pictures"),
        ("[{name: a}]", "'title' is missing"),
        (f"[{LINES}}}, {LINES}}}]", "pictures[1]: found a second picture 'speed', expected each name once"),
        (f"[{LINES}, by: polcy}}]", "pictures[0].by: 'polcy' is not a column; did you mean 'policy'?"),
        (f"[{LINES}, value: fits}}]", "'value' is for pictures of kind heat_map"),
        (f"[{LINES}, where: {{gpu: 1}}}}]", "'gpu' is not a column"),
        (f"[{LINES}, where: {{policy: [[]]}}}}]", "expected text, a number, true or false"),
        (f"[{LINES}, marks: {{gen3: 12.8}}}}]", "pictures[0].marks.gen3: found 12.8, expected a number with one of"),
        (f"[{LINES}, marks: {{gen3: 12 GiB}}}}]", "found '12 GiB', expected a number with one of the units B/s"),
        ("[{name: A b, title: t, kind: lines, x: fits, y: fits}]", "expected a name of small letters"),
        ("[{name: a, title: t, kind: pie, x: fits, y: fits}]", "'pie' is not a kind of picture"),
        ("[{name: a, title: t, kind: heat_map, x: fits, y: fits}]", "'value' is for pictures of kind heat_map"),
        ("[{name: a, title: t, kind: lines, x: fits / 0, y: fits}]", "expected factors that are not zero"),
        ("[{name: a, title: t, kind: lines, x: 2 * fit, y: fits}]", "'fit' is not a column; did you mean 'fits'?"),
        ("[" + ", ".join(["{name: a}"] * 21) + "]", "found 21 pictures, expected at most 20"),
        (f"[{LINES}, marks: {{" + ", ".join(f"m{number}: 1" for number in range(21)) + "}}]", "found 21 marks"),
    ],
)
def test_wrong_pictures_are_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(StudyError, read, tmp_path, text)
