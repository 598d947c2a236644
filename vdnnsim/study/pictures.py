"""The key `pictures` of a study file.

    pictures:
      - name: speed
        title: "From which link on is offload free?"
        kind: lines
        x: link.bandwidth_bytes_per_s
        y: performance_ratio
        by: policy
        panels: hardware
        where: {network: [vgg416]}
        marks: {PCIe gen3: 12.8 GB/s}

`x`, `y`, `value`, `by` and `panels` are columns of the study's results. `x` and `y` may be expressions, labelled by
`x_label` and `y_label`: `7e12 * gpu.compute_speed / link.bandwidth_bytes_per_s`. `lines` has a line for each value of
`by`. `heat_map` has a cell for each pair of `x` and `y` with its `value`; with `by`, the best value and its value of
`by`. `pareto` has a point for each row and the front of those that fit. `subtitle` describes all rows, `panels` divides
a picture by one more column, `where` keeps rows with the listed values, `marks` are named places on `x` in its unit.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final

from vdnnsim.errors import InputError
from vdnnsim.files.messages import LONGEST_SHOWN, not_one_of, one_line, quote
from vdnnsim.files.value import Entry
from vdnnsim.report.study_picture import Mark, PictureKind, StudyPicture, cell_text, factors
from vdnnsim.units import Dimension, dimension_of, parse_quantity

MOST_PICTURES: Final = 20
MOST_MARKS: Final = 20
_OPTIONAL: Final = ("subtitle", "x_label", "y_label", "value", "by", "panels", "where", "marks")
_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,39}")
_RENAMED: Final = {
    "images_per_s": "samples_per_s",
    "max_memory_bytes": "allocated_bytes",
    "mean_memory_bytes": "mean_allocated_bytes",
    "pool_bytes": "reserved_bytes",
    "runtime_bytes": "process_bytes",
}
"""Ends of columns' names in files of version 0.1, and what they are called now."""
_OLD_END = re.compile(rf"({'|'.join(_RENAMED)})\b")


def read_pictures(
    entry: Entry, columns: Sequence[str], words: Collection[str] = (), varied: Collection[str] = ()
) -> tuple[StudyPicture, ...]:
    """Return the pictures of a study file over its columns, of which `words` hold no numbers.

    Axes with several values, in all combinations, are the columns `varied`.

    Raises:
        InputError: of the kind of the entry, if something in it is wrong.
    """
    items = entry.items("pictures")
    if len(items) > MOST_PICTURES:
        raise entry.wrong(f"found {len(items)} pictures, expected at most {MOST_PICTURES}")
    pictures: list[StudyPicture] = []
    for item in items:
        picture = _picture(item, columns, words)
        _refuse_crowded(item, picture, varied)
        if any(picture.name == other.name for other in pictures):
            raise item.wrong(f"found a second picture {quote(picture.name)}, expected each name once")
        pictures.append(picture)
    return tuple(pictures)


def _picture(entry: Entry, columns: Sequence[str], words: Collection[str]) -> StudyPicture:
    keys = entry.members(("name", "title", "kind", "x", "y"), _OPTIONAL)
    name = keys["name"].text()
    if not _NAME.fullmatch(name):
        raise keys["name"].expected("a name of small letters, digits and _, which becomes the name of a file")
    kind = keys["kind"].choice(PictureKind, "a kind of picture")
    if (kind is PictureKind.HEAT_MAP) is not ("value" in keys):
        raise entry.wrong("'value' is for pictures of kind heat_map, which need it, and for no others")
    return StudyPicture(
        name=name,
        title=keys["title"].text(),
        kind=kind,
        x=_expression(keys["x"], columns, words),
        y=_expression(keys["y"], columns, words),
        value=_number(keys["value"], columns, words) if "value" in keys else "",
        where=_where(keys["where"], columns) if "where" in keys else (),
        marks=_marks(keys["marks"], keys["x"].text()) if "marks" in keys else (),
        **{each: keys[each].text() for each in ("subtitle", "x_label", "y_label") if each in keys},
        **{each: _column(keys[each], columns) for each in ("by", "panels") if each in keys},
    )


def _refuse_crowded(entry: Entry, picture: StudyPicture, varied: Collection[str]) -> None:
    """Refuse lines with several points at one place: those of an axis that nothing places, divides or selects."""
    named = {part.column for part in factors(picture.x) if part.number is None} | {picture.by, picture.panels}
    named = (named | {column for column, _ in picture.where}) - {""}
    left = [each for each in varied if each not in named]
    # A column that is no axis may tell points apart.
    if picture.kind is PictureKind.LINES and left and named.issubset(varied):
        raise entry.wrong(
            f"picture {picture.name!r}: found lines with several points at each {picture.x}, for {' and '.join(left)} "
            "varies too; expected it in by, panels or where"
        )


def _current(name: str) -> str:
    return _OLD_END.sub(lambda old: _RENAMED[old[1]], name)


def _column(entry: Entry, columns: Sequence[str]) -> str:
    name = _current(entry.text())
    return name if name in columns else entry.name(columns, "a column")


def _expression(entry: Entry, columns: Sequence[str], words: Collection[str]) -> str:
    text = _current(entry.text())
    parts = factors(text)
    for factor in parts:
        if factor.number is None and factor.column not in columns:
            raise entry.wrong(not_one_of(factor.column, columns, "a column"))
        if len(parts) > 1 and factor.column in words:
            raise entry.wrong(f"{factor.column!r} holds no numbers, expected a column that does")
    if any(factor.number == 0 for factor in parts):
        raise entry.expected("factors that are not zero")
    return text


def _number(entry: Entry, columns: Sequence[str], words: Collection[str]) -> str:
    column = _column(entry, columns)
    if column in words:
        raise entry.wrong(f"{column!r} holds no numbers, expected a column that does")
    return column


def _where(entry: Entry, columns: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    wanted = []
    for written, values in entry.named_members("columns").items():
        column = _current(written)
        if column not in columns:
            raise entry.wrong(not_one_of(column, columns, "a column"))
        shown = values.items("values") if isinstance(values.value, list) else (values,)
        wanted.append((column, tuple(_plain(each) for each in shown)))
    return tuple(wanted)


def _plain(entry: Entry) -> str:
    if not isinstance(entry.value, str | int | float):
        raise entry.expected("text, a number, true or false")
    return cell_text(entry.value)


def _marks(entry: Entry, x: str) -> tuple[Mark, ...]:
    marks = entry.named_members("marks")
    if len(marks) > MOST_MARKS:
        raise entry.wrong(f"found {len(marks)} marks, expected at most {MOST_MARKS}")
    # An expression is a plain number.
    dimension = dimension_of(x) if len(factors(x)) == 1 else Dimension.COUNT
    return tuple(Mark(name, _place(place, dimension)) for name, place in marks.items())


def _place(entry: Entry, dimension: Dimension) -> float:
    if not isinstance(entry.value, str | int | float) or len(str(entry.value)) > LONGEST_SHOWN:
        raise entry.expected(f"a number of {dimension.value}")
    try:
        return parse_quantity(entry.value, dimension)
    except InputError as failure:
        raise entry.wrong(one_line(str(failure))) from None
