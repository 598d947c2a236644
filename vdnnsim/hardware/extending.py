"""Profiles that extend another: `extends: rtx_4090`, and below it what differs.

    schema_version: 1
    name: rtx_4090_48gb
    description: an RTX 4090 with twice the memory
    extends: rtx_4090
    gpu:
      memory: {value: 47.4 GiB, origin: measured, source: "nvidia-smi"}

What is not stated is as there, but for `provenance`; a figure is stated anew as a whole, and a key that the other has
goes with `null`. A topology, tables, and a cost model of another kind take the place of the other's as a whole.
"""

from typing import Final

from vdnnsim.entry import YamlValue

EXTENDS: Final = "extends"
_OWN: Final = ("provenance", EXTENDS)
_WHOLE: Final = ("topology", "kernels", "copies", "provenance")


def extended(base: YamlValue, own: YamlValue) -> YamlValue:
    """Return the content of a profile that extends another, of which nothing is checked here."""
    if not isinstance(base, dict) or not isinstance(own, dict):
        return own
    kept = {key: value for key, value in base.items() if key not in _OWN}
    if "h2d" in _mapping(own.get("link")) or "d2h" in _mapping(own.get("link")):
        kept.pop("copies", None)
    model = _mapping(own.get("cost_model"))
    if "kind" in model and model["kind"] != _mapping(base.get("cost_model")).get("kind"):
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


def _mapping(value: YamlValue) -> dict[str, YamlValue]:
    return value if isinstance(value, dict) else {}
