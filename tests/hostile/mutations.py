"""Random mutations of valid contents: trees of values, tables, bytes and databases."""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

Tree = Any
"""Mappings, lists, text and numbers, as YAML, JSON and pickles hold them."""

NUMBERS: Final = (
    *(0, -1, 1, 2, 3, 7, 255, 2**31, 2**53 + 1, 2**63, 2**64, 10**18, 10**30, -(2**63)),
    *(0.0, -0.0, 0.5, 1e-300, 1e-9, 1e18, 1e300, 1.8e308, float("nan"), float("inf"), -1e300),
)
TEXTS: Final = (
    *("", " ", "0", "-1", "1_0", "\uff11\uff10", "nan", "1e999 B", "1 EiB", "1048576 TiB", "2 EiB", "0 s", "1e300 s"),
    *("10 s", "1 B/s", "1e18 B/s", "1 FLOP/s", "12 gb", "yes", "~", "null", "../x", "/etc/passwd", "x.yaml", "a\nb"),
    *("\u2028", "\x00", "\U0001f600", "x" * 2000, "{", "%s%n", "$(id)", "base(p)"),
)
LARGE: Final[tuple[Tree, ...]] = ([[]] * 50, {str(number): number for number in range(300)}, [0] * 3000, "[" * 300)


_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z/]+)")


def places(tree: Tree, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of keys and positions to everything inside a tree."""
    inner: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, member in inner:
        yield (*place, key)
        yield from places(member, (*place, key))


def mutated_tree(tree: Tree, draw: Random, words: Sequence[Tree] = ()) -> Tree:
    """Return a copy of a tree changed at one to three places; `words` are meaningful values, a tuple for each kind."""
    tree = copy.deepcopy(tree)
    for _ in range(draw.choice((1, 1, 1, 1, 2, 3))):
        every = list(places(tree))
        if not every:
            break
        *above, key = draw.choice(every)
        parent = tree
        for step in above:
            parent = parent[step]
        draw.choice(_CHANGES)(parent, key, draw, (*words, *_members(tree, every, draw)))
    return tree


def _members(tree: Tree, every: Sequence[tuple[Any, ...]], draw: Random) -> list[Tree]:
    found = []
    for place in draw.sample(every, min(3, len(every))):
        member = tree
        for step in place:
            member = member[step]
        found.append(copy.deepcopy(member))
    return found


def _replace(parent: Tree, key: Any, draw: Random, words: Sequence[Tree]) -> None:  # noqa: ANN401 - a key or a position
    if words and draw.random() < 0.25:
        parent[key] = _word(words, draw)
    else:
        pool: Sequence[Tree] = draw.choice((NUMBERS, TEXTS, (None, True, False, [], {})))
        parent[key] = copy.deepcopy(draw.choice(LARGE if draw.random() < 0.02 else pool))


def _near(parent: Tree, key: Any, draw: Random, words: Sequence[Tree]) -> None:  # noqa: ANN401
    value = parent[key]
    if isinstance(value, bool):
        parent[key] = not value
    elif isinstance(value, int):
        parent[key] = draw.choice((draw.randint(0, 20), 2 ** draw.randint(0, 62), value * 10, value // 2))
    elif isinstance(value, float):
        parent[key] = value * 10 ** draw.uniform(-9, 9)
    elif isinstance(value, str) and (quantity := _QUANTITY.fullmatch(value)):
        scaled = f"{float(quantity[1]) * 10 ** draw.uniform(-9, 9):.4g}"
        parent[key] = f"{draw.choice(('0', '1', '1e-9', '1000', scaled, '1e15'))} {quantity[2]}"
    elif isinstance(value, str) and words:
        alike = [group for group in words if isinstance(group, tuple) and value in group]
        parent[key] = draw.choice(draw.choice(alike)) if alike else _word(words, draw)
    else:
        _replace(parent, key, draw, words)


def _word(words: Sequence[Tree], draw: Random) -> Tree:
    chosen = draw.choice(words)
    return draw.choice(chosen) if isinstance(chosen, tuple) else copy.deepcopy(chosen)


def _scale(parent: Tree, key: Any, draw: Random, words: Sequence[Tree]) -> None:  # noqa: ANN401
    value = parent[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        _replace(parent, key, draw, words)
    elif isinstance(value, int):
        numbers = (value + 1, value - 1, -value, value * 10**6, float(value), str(value), value * 2**60)
        parent[key] = draw.choice(numbers)
    else:
        parent[key] = draw.choice((-value, value * 1e12, value * 1e-12, str(value), [value]))


def _remove(parent: Tree, key: Any, _draw: Random, _words: Sequence[Tree]) -> None:  # noqa: ANN401
    del parent[key]


def _double(parent: Tree, key: Any, draw: Random, _words: Sequence[Tree]) -> None:  # noqa: ANN401
    if isinstance(parent, list):
        parent.insert(draw.randint(0, len(parent)), copy.deepcopy(parent[key]))
    else:
        parent[f"{key}{draw.choice('sx_ ')}"] = copy.deepcopy(parent[key])


def _rename(parent: Tree, key: Any, draw: Random, words: Sequence[Tree]) -> None:  # noqa: ANN401
    if isinstance(parent, list):
        _replace(parent, key, draw, words)
    else:
        names = [draw.choice(TEXTS), str(key)[:-1], str(key).upper(), str(_word(words, draw)) if words else "other"]
        parent[draw.choice(names)] = parent.pop(key)


_CHANGES: Final[tuple[Callable[[Tree, Any, Random, Sequence[Tree]], None], ...]] = (
    *(_near, _near, _near, _near, _near, _near, _near, _near),
    *(_replace, _scale, _remove, _double, _rename),
)


def mutated_bytes(data: bytes, draw: Random) -> bytes:
    """Return bytes cut off, flipped, doubled, or with others inserted."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(changed) + 1)
        to = min(len(changed), at + draw.choice((1, 1, 4, 100)))
        match draw.randrange(6):
            case 0:
                del changed[at:]
            case 1 if changed:
                changed[min(at, len(changed) - 1)] ^= 1 << draw.randrange(8)
            case 2:
                pieces = (b"\x00", b"\xff\xfe", b"\n", b"\r", b'"', b"[" * 400, b"\xef\xbb\xbf", b"{}")
                changed[at:at] = draw.choice(pieces)
            case 3:
                changed[at:at] = changed[at:to]
            case 4:
                del changed[at:to]
            case _:
                changed[at:to] = draw.randbytes(to - at)
    return bytes(changed)


def mutated_table(text: str, draw: Random, words: Sequence[str] = ()) -> str:
    """Return CSV text with cells, rows or columns changed, removed or doubled."""
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(draw.choice((1, 1, 2, 3))):
        row = draw.randrange(len(rows))
        column = draw.randrange(max(1, len(rows[row])))
        match draw.randrange(7):
            case 0:
                rows.insert(draw.randint(0, len(rows)), list(rows[row]))
            case 1 if len(rows) > 1:
                del rows[row]
            case 2:
                rows[row].insert(column, "")
            case 3:
                rows[row], other = list(rows[-1]), rows[row]
                rows[-1] = other
            case _ if rows[row]:
                pool = draw.choice((TEXTS, tuple(map(str, NUMBERS)), tuple(words) or TEXTS))
                rows[row][min(column, len(rows[row]) - 1)] = str(draw.choice(pool)).replace("\n", " ")
            case _:
                rows[row] = [""]
    return "".join(f"{','.join(row)}\n" for row in rows)


def mutated_database(path: Path, draw: Random) -> None:
    """Flip bits of a database, cut it off, or swap two of its pages."""
    data, page = bytearray(path.read_bytes()), 4096
    pages = len(data) // page
    for _ in range(draw.choice((1, 1, 3, 20))):
        one, other = (draw.randrange(pages) * page for _ in range(2))
        match draw.randrange(5):
            case 0:
                first, second = data[one : one + page], data[other : other + page]
                data[one : one + page], data[other : other + page] = second, first
            case 1:
                data[one : one + page] = bytes(page)
            case 2 if draw.random() < 0.2:
                del data[draw.randrange(len(data)) :]
                break
            case _:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def as_yaml(tree: Tree) -> bytes:
    """Return a tree as YAML in flow style, which is JSON."""
    return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")
