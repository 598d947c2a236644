"""Work shared between processes of this machine."""

from reports.readings import on_all_cores


def test_answers_come_in_the_order_of_the_questions() -> None:
    lines: list[str] = []
    assert on_all_cores(abs, iter([-2, 3, -1]), lines.append) == [2, 3, 1]
    assert lines == ["1 of 3", "2 of 3", "3 of 3"]
    assert on_all_cores(abs, [-4]) == [4]
