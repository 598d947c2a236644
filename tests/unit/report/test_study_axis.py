import pytest

from vdnnsim.errors import InputError
from vdnnsim.report.study_picture import PictureKind, StudyCells, StudyPicture, best, cell, shown_rows, study_axis

PICTURE = StudyPicture("p", "title", PictureKind.LINES, "gpus", "stall_s", where=(("policy", ("a",)),))


def test_rows_without_a_number_or_with_another_value_are_not_shown() -> None:
    rows: list[StudyCells] = [
        {"policy": "a", "gpus": 1, "stall_s": 1.0},
        {"policy": "a", "gpus": 2, "stall_s": None},
        {"policy": "a", "gpus": 3, "stall_s": ""},
        {"policy": "b", "gpus": 4, "stall_s": 1.0},
    ]
    assert [row["gpus"] for row in shown_rows(rows, PICTURE)] == [1]


def test_nothing_to_show_says_what_was_asked_for() -> None:
    with pytest.raises(InputError, match="picture 'p': found no row to draw, expected one that has policy a and was"):
        shown_rows([{"policy": "b", "gpus": 1, "stall_s": 1.0}], PICTURE)


def test_an_expression_of_columns() -> None:
    """7 * 4 / 2 is 14."""
    row: StudyCells = {"speed": 4.0, "link": 2, "policy": "a"}
    assert cell(row, "7 * speed / link") == 14.0
    assert cell(row, "policy") == "a"
    with pytest.raises(InputError, match="found 'a' for policy, expected a number"):
        cell(row, "speed / policy")


@pytest.mark.parametrize(
    ("column", "value", "label", "text"),
    [
        ("gpu.memory_bytes", 24 * 2**30, "GPU memory, GiB", "24"),
        ("link.bandwidth_bytes_per_s", 12.8e9, "bandwidth of the host link, each way, GB/s", "12.8"),
        ("stall_s", 0.0125, "stalls, ms", "12.5"),
        ("gpu.peak.float32_flop_per_s", 7e12, "gpu.peak.float32 flop per s, TFLOP/s", "7"),
        ("images_per_s", 1234.56, "images/s", "1235"),
        ("performance_ratio", 0.988, "speed, % of the oracular baseline", "98.8"),
        ("performance_ratio", 0.996, "speed, % of the oracular baseline", "99.6"),
        ("performance_ratio", 0.9999, "speed, % of the oracular baseline", "99.9"),
        ("performance_ratio", 1.0, "speed, % of the oracular baseline", "100"),
        ("gpus", 8, "GPUs", "8"),
        ("hardware", "h200", "hardware", "h200"),
    ],
)
def test_a_column_is_known_by_its_name(column: str, value: float | str, label: str, text: str) -> None:
    axis = study_axis(column, [value])
    assert (axis.label, axis.text(value)) == (label, text)


def test_names_stand_in_the_order_of_the_rows() -> None:
    axis = study_axis("hardware", ["titan", "h200", "titan"])
    assert (axis.place("titan"), axis.place("h200")) == (0.0, 1.0)
    assert study_axis("x", [1.0], "what x is").label == "what x is"


def test_more_speed_and_less_of_anything_else_is_better() -> None:
    assert (best("images_per_s", (1.0, 2.0)), best("performance_ratio", (1.0, 2.0))) == (2.0, 2.0)
    assert best("max_memory_bytes", (1.0, 2.0)) == 1.0
