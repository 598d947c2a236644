"""Trees, tables and bytes changed at a few places, as Hypothesis draws them."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.registry import known_policies

Draw = Callable[[st.SearchStrategy[Any]], Any]

SLOW = {"vdnn_dyn", "staggered_swap"}
WORDS = (
    *("alexnet", "tiny_forked", "resnet18", "resnetN", "accumulate(steps=2)", "vdnn_all(p, chunk=64 MiB)", "h100_x8"),
    *(name for name in known_policies() if name not in SLOW),
    *(each.value for each in MemoryModel),
    *("amp_bf16", "inference", "p100_x2", "no_such_card", "heat_map", "pareto", "gpu.context", "gpus", "gradients"),
    *("samples_per_s", "fits", "stall_s", "step", "count", "where", "gpus == 1", "not (link.bandwidth < 9 GB/s)"),
    *("socket", "host memory", "shared", "lossy_duplex", "measured", "fitted"),
    *("", "-1", "1_0", "\uff11\uff10", "nan", "1e999 B", "1048576 TiB", "0 s", "1e300 s", "1 B/s", "12 gb", "yes", "~"),
    *("../x", "/etc/passwd", "a\nb", "\u2028", "\x00", "\U0001f600", "x" * 2000, "[" * 300, "$(id)"),
)
NUMBERS = (0, -1, 1, 7, 2**31, 2**53 + 1, 2**64, 10**30, -0.0, 1e-300, 0.5, 1e18, 1.8e308, float("nan"), -1e300)
LARGE: tuple[Any, ...] = ([[]] * 50, {str(each): each for each in range(300)})
VALUES: st.SearchStrategy[Any] = st.sampled_from((*WORDS, *NUMBERS, None, True, [], {}, *LARGE))


def places(tree: Any, *above: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401  # as JSON has it
    """Yield the path of keys and positions to everything inside a tree."""
    inner: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, member in inner:
        yield (*above, key)
        yield from places(member, *above, key)


@st.composite
def changed(draw: Draw, tree: Any) -> Any:  # noqa: ANN401  # as JSON has it
    """Draw a copy of a tree changed at one to three places."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        *above, key = draw(st.sampled_from(list(places(tree)) or [()])) or [None]
        parent = tree
        for step in above:
            parent = parent[step]
        match draw(st.sampled_from(("value", "near", "near", "remove", "double", "rename"))):
            case "near" if isinstance(parent[key], int | float):
                parent[key] = draw(st.sampled_from((-parent[key], 10 * parent[key], str(parent[key]), [parent[key]])))
            case "near" if isinstance(parent[key], str):
                parent[key] = f"{draw(st.integers(0, 10**12))}{parent[key].lstrip('0123456789.')}"
            case "remove":
                del parent[key]
            case "double" if isinstance(parent, list):
                parent.insert(draw(st.integers(0, len(parent))), copy.deepcopy(parent[key]))
            case "rename" if isinstance(parent, dict):
                parent[draw(st.sampled_from((*WORDS, str(key)[:-1])))] = parent.pop(key)
            case _:
                parent[key] = copy.deepcopy(draw(VALUES))
        if not tree:
            break
    return tree


@st.composite
def damaged(draw: Draw, data: bytes) -> bytes:
    """Draw bytes cut off, or with some of them replaced."""
    start = draw(st.integers(0, len(data)))
    middle = draw(st.binary(max_size=20) | st.sampled_from((b"\xef\xbb\xbf", b"[" * 400, data[start : start + 100])))
    end: int = draw(st.integers(start, min(len(data), start + 40)) | st.just(len(data)))
    return b"".join((data[:start], middle, data[end:]))


@st.composite
def changed_table(draw: Draw, text: str) -> bytes:
    """Draw CSV text with a cell or a row changed."""
    rows = [line.split(",") for line in text.splitlines()]
    row = draw(st.sampled_from(rows))
    if draw(st.booleans()):
        row[draw(st.integers(0, len(row) - 1))] = str(draw(VALUES)).replace("\n", " ")
    else:
        rows.insert(draw(st.integers(0, len(rows))), row)
    return "".join(f"{','.join(row)}\n" for row in rows).encode(errors="surrogatepass")


def as_yaml(tree: object) -> bytes:
    """Return a tree as YAML in flow style, which is JSON."""
    return json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass")


def written(path: Path, tree: object, draw: Draw) -> None:
    """Write a changed tree; one in some is damaged besides."""
    data = as_yaml(draw(changed(tree)))
    path.write_bytes(draw(damaged(data)) if draw(st.integers(0, 9)) == 9 else data)
