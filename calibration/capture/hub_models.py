"""Configurations of models of huggingface.co that are known without a network (`hub_models.txt`)."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec


class HubModel(msgspec.Struct, frozen=True):
    """A model's name on the hub, its type in transformers, and what differs from the default of that type."""

    name: str
    kind: str
    parameters: int
    changes: Mapping[str, Any]


@cache
def hub_models() -> Mapping[str, HubModel]:
    """Return the models by their names in lower case, whole and without owner, `Meta-` and `-hf`."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    rows = [_row(each) for each in lines if each and not each.startswith("#")]
    return {key: row for row in rows for key in (_short(row.name), row.name.lower())}


def hub_model(name: str) -> HubModel | None:
    """Return a model as the hub names it, `meta-llama/Meta-Llama-3-8B`, or shorter; None if it is not known."""
    return hub_models().get(name.lower()) or hub_models().get(_short(name))


def _short(name: str) -> str:
    return name.rpartition("/")[2].lower().removeprefix("meta-").removesuffix("-hf")


def _row(line: str) -> HubModel:
    name, kind, parameters, *changes = line.split()
    pairs = (each.partition("=") for each in changes)
    figures = {key: msgspec.json.decode(value) for key, _, value in pairs}
    return HubModel(name, kind, int(parameters.replace(",", "")), figures)
