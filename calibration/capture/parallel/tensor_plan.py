"""Which layers of a model are split over ranks, and how: a plan that it has, or the usual names of its layers.

A plan is what models of transformers have as `tp_plan`, a dictionary of paths with styles:

    {"layers.*.attention.wq": "colwise", "layers.*.attention.wo": "rowwise", ..., "head": "colwise_gather_output"}
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from torch import nn

from calibration.capture.blocks import blocks_of
from calibration.capture.failures import largest_split
from vdnnsim.errors import CaptureError


class Style(Enum):
    """How a layer is split."""

    COLUMNS = "columns"
    GATHERED_COLUMNS = "columns, and the result is gathered"
    ROWS = "rows"
    ROWS_OF_WHOLE = "rows, and the input is whole"
    REPLICATED = "replicated"


_STYLES: Final[Mapping[str, Style]] = MappingProxyType(
    {
        "colwise": Style.COLUMNS,
        # The order of columns changes neither shapes nor times.
        "packed_colwise": Style.COLUMNS,
        "colwise_gather_output": Style.GATHERED_COLUMNS,
        "colwise_rep": Style.GATHERED_COLUMNS,
        "embedding_colwise": Style.COLUMNS,
        "rowwise": Style.ROWS,
        "embedding_rowwise": Style.ROWS,
        "rowwise_split_input": Style.ROWS_OF_WHOLE,
        "rowwise_rep": Style.ROWS_OF_WHOLE,
        "replicated_with_grad_allreduce": Style.REPLICATED,
        "sequence_parallel": Style.REPLICATED,
        "replicate": Style.REPLICATED,
    }
)
"""By the words of transformers."""
_COLUMNS: Final = frozenset(
    "q_proj k_proj v_proj wq wk wv query key value to_q to_k to_v "
    "gate_proj up_proj w1 w3 fc1 linear1 c_fc up gate intermediate.dense".split()
)
_ROWS: Final = frozenset("o_proj out_proj wo to_out down_proj w2 fc2 linear2 c_proj down output.dense".split())
_HEADS: Final = frozenset({"lm_head", "head", "output", "unembed"})
_COUNTS: Final = (
    "num_heads num_kv_heads num_attention_heads num_key_value_heads n_heads n_kv_heads n_head n_kv_head".split()
)
"""What modules call their number of heads."""
_OWN: Final = "a function that splits its model itself, with ranks=N"
_NAMES: Final = (
    "q_proj, k_proj, v_proj and o_proj, or gate_proj, up_proj and down_proj, or wq ..., w1 ..., fc1 and fc2, or query, "
    "key, value, output.dense and intermediate.dense"
)


def styles_of(model: nn.Module, ranks: int) -> dict[str, Style]:
    """Return how layers of a model are split over ranks, by path.

    Raises:
        CaptureError: nothing says how, or a layer cannot be split so.
    """
    modules = dict(model.named_modules())
    plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    styles = dict(_planned(model, modules, plan) if plan else _named(model, modules))
    if not plan:
        _divide_heads(modules, styles, ranks)
    for path, style in styles.items():
        _check(path, modules[path], style, ranks)
    _check_heads(model, ranks)
    return styles


def _planned(model: nn.Module, modules: Mapping[str, nn.Module], plan: object) -> Iterator[tuple[str, Style]]:
    """Yield the styles of a plan."""
    if not isinstance(plan, Mapping):
        raise _refused(f"tp_plan of {type(model).__name__} is a {type(plan).__name__}, expected a dictionary")
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for pattern, word in plan.items():
        form = re.compile(re.escape(str(pattern)).replace(r"\*", r"[^.]+"))
        for path in filter(form.fullmatch, (*modules, *parameters)):
            if path not in modules:
                raise _refused(f"{path}: tp_plan splits a parameter, as of experts, expected layers, or {_OWN}")
            if not isinstance(word, str) or word not in _STYLES:
                raise _refused(f"{path}: tp_plan says {word!r}, expected one of {', '.join(_STYLES)}, or {_OWN}")
            yield path, _STYLES[word]


def _named(model: nn.Module, modules: Mapping[str, nn.Module]) -> Iterator[tuple[str, Style]]:
    """Yield the styles of layers with usual names: of a block all linear layers, the output layer, the embedding."""
    blocks = blocks_of(model)
    block_of = {id(each): block for block in blocks for each in block.modules()}
    kinds = {id(block): set[Style]() for block in blocks}
    for path, each in modules.items():
        if not isinstance(each, nn.Linear):
            continue
        *_, owner, name = ("", *path.split("."))
        block = block_of.get(id(each))
        if block is None:
            if name in _HEADS:
                yield path, Style.GATHERED_COLUMNS
                yield from (
                    (where, Style.ROWS)
                    for where, table in modules.items()
                    if isinstance(table, nn.Embedding) and table.num_embeddings == each.out_features
                )
            continue
        words = {name, f"{owner}.{name}"}
        style = Style.COLUMNS if words & _COLUMNS else Style.ROWS
        if style is Style.ROWS and not words & _ROWS:
            raise _unnamed(model, path)
        kinds[id(block)].add(style)
        yield path, style
    if not blocks:
        raise _refused(
            f"{type(model).__name__} has neither a `tp_plan` nor a list of equal blocks, expected one of them"
        )
    for block in blocks:
        if len(kinds[id(block)]) == 1:
            raise _unnamed(model, next(path for path, each in modules.items() if each is block))


def _unnamed(model: nn.Module, path: str) -> CaptureError:
    return _refused(
        f"{path}: nothing says how it is split; expected layers of nn.Linear named {_NAMES}, or a dictionary `tp_plan` "
        f"of {type(model).__name__}, as transformers' models have"
    )


def _divide_heads(modules: Mapping[str, nn.Module], styles: Mapping[str, Style], ranks: int) -> None:
    """Leave modules that own split columns the heads of one rank, as a user of `parallelize_module` does.

    Source: pytorch.org/tutorials/intermediate/TP_tutorial.html, of attention.
    """
    for path in dict.fromkeys(path.rpartition(".")[0] for path, style in styles.items() if style is Style.COLUMNS):
        for name in _COUNTS:
            heads = getattr(modules[path], name, None)
            if not isinstance(heads, int) or heads < 1:
                continue
            if heads % ranks:
                raise _undivided(path, name, heads, ranks)
            setattr(modules[path], name, heads // ranks)


def _check(path: str, module: nn.Module, style: Style, ranks: int) -> None:
    if style is Style.REPLICATED:
        return
    rows = style in (Style.ROWS, Style.ROWS_OF_WHOLE)
    if isinstance(module, nn.Embedding):
        what, size = ("rows", module.num_embeddings) if rows else ("features", module.embedding_dim)
    elif isinstance(module, nn.Linear):
        what, size = ("inputs", module.in_features) if rows else ("outputs", module.out_features)
    else:
        raise _refused(f"{path}: is a {type(module).__name__}, expected an nn.Linear or nn.Embedding to split")
    if size % ranks:
        raise _refused(f"{path}: has {size} {what}, expected a multiple of tp={ranks}")


def _check_heads(model: nn.Module, ranks: int) -> None:
    """Check the heads that a configuration of transformers states."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(text, name, None)
        if isinstance(heads, int) and heads % ranks:
            raise _undivided(type(model).__name__, name, heads, ranks)


def _undivided(where: str, name: str, heads: int, ranks: int) -> CaptureError:
    right = largest_split(heads, ranks)
    return _refused(f"{where}: {name} is {heads}, which cannot be split over {ranks} ranks, expected {right}")


def _refused(text: str) -> CaptureError:
    return CaptureError(f"--parallel: {text}")
