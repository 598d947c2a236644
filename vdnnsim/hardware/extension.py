"""The content of a profile that extends another."""

from typing import Final

from vdnnsim.files.value import YamlValue

EXTENDS: Final = "extends"
_WHOLE: Final = ("kernels", "copies", "provenance")


def extended(base: YamlValue, own: YamlValue) -> YamlValue:
    """Return the content of a profile merged with that of its base, unchecked.

    What is not stated is inherited, but for `provenance` and the name of a link of another rate; figures are replaced
    as a whole, and `null` removes a key. A topology with nodes, which stands for a link as well, tables, and a cost
    model of another kind replace those of the base.
    """
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    kept = {key: value for key, value in base.items() if key not in ("provenance", EXTENDS)}
    if "h2d" in mapping_in(own.get("link")) or "d2h" in mapping_in(own.get("link")):
        kept.pop("copies", None)
        # Another rate is not that of the link by its name.
        kept["link"] = mapping_in(kept.get("link")) | {"name": f"link of {own.get('name')}"}
    if "topology" in own and "link" not in own:
        kept.pop("link", None)
    if "nodes" in mapping_in(own.get("topology")):
        kept.pop("topology", None)
    model = mapping_in(own.get("cost_model"))
    if "kind" in model and model["kind"] != mapping_in(base.get("cost_model")).get("kind"):
        kept.pop("cost_model", None)
    return _merged(kept, own)


def _merged(base: dict[str, YamlValue], own: dict[str, YamlValue]) -> dict[str, YamlValue]:
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(below, dict) and isinstance(value, dict) and "value" not in below and key not in _WHOLE:
            merged[key] = _merged(below, value)
        else:
            merged[key] = value
    return merged


def mapping_in(value: YamlValue) -> dict[str, YamlValue]:
    return value if isinstance(value, dict) else {}
