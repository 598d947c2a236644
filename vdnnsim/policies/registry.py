"""The policies by name: those shipped here, those of installed packages, those of a module that the user names.

A new policy is one file and one line in `_SHIPPED`. A policy of one's own is a subclass of
`vdnnsim.policies.port.Policy`, either in a module given with `--policy-module NAME`, or behind an entry point of the
group `vdnnsim.policies`. A scenario file only ever names policies: YAML never imports code.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from importlib.metadata import entry_points

import msgspec

from vdnnsim.errors import PolicyError
from vdnnsim.policies.base import Base
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.port import Policy
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv
from vdnnsim.policies.vdnn_dyn import VdnnDyn
from vdnnsim.yaml_file import LONGEST_SHOWN, not_one_of, one_line, quote

PolicyTypes = Mapping[str, type[Policy]]
"""Policy classes by name."""

_SHIPPED: tuple[type[Policy], ...] = (Base, VdnnAll, VdnnConv, VdnnDyn, PageMigration)
_ENTRY_POINT_GROUP = "vdnnsim.policies"
_SHORT_FORM = re.compile(r"(\w+)(?:\((\w*)\))?")


def known_policies(modules: Iterable[str] = ()) -> PolicyTypes:
    """Return all policies: shipped, from entry points, and from the named modules, later ones not hiding earlier.

    Raises:
        PolicyError: a module or entry point cannot be imported, holds no policy, or takes a name that is taken.
    """
    types = {policy.name: policy for policy in _SHIPPED}
    for entry in entry_points(group=_ENTRY_POINT_GROUP):
        _add(types, f"entry point {entry.name!r}", (_import(entry.load, f"entry point {entry.name!r}"),))
    for module in modules:
        origin = f"policy module {module!r}"
        namespace = vars(_import(partial(importlib.import_module, module), origin))
        own = (value for value in namespace.values() if getattr(value, "__module__", None) == namespace["__name__"])
        _add(types, origin, tuple(own))
    return types


def resolve_policy(spec: object, types: PolicyTypes) -> Policy:
    """Return the policy that a scenario asks for: `vdnn_all(m)`, or a mapping `{policy: vdnn_all, algorithms: m}`.

    Raises:
        PolicyError: the form, the name, or an option is wrong.
    """
    match spec:
        case str() if match := _SHORT_FORM.fullmatch(spec.strip()):
            name, options = match[1], {} if match[2] is None else {"algorithms": match[2]}
        case {"policy": str(name), **rest}:
            options = {str(key): value for key, value in rest.items()}
        case _:
            raise PolicyError(
                f"found {_shown(spec)}, expected a policy as vdnn_all(m) or a mapping with the key policy"
            )
    if name not in types:
        raise PolicyError(not_one_of(name, tuple(types), "a policy"))
    fields = {field.name: field for field in msgspec.structs.fields(types[name])}
    for key, value in options.items():
        if key not in fields:
            raise PolicyError(f"{name}: {not_one_of(key, tuple(fields), 'an option')}")
        _check_choice(f"{name}: {key}", value, fields[key].type)
    try:
        return msgspec.convert(options, types[name])
    except msgspec.ValidationError as error:
        raise PolicyError(f"{name}: {error}") from None


def _check_choice(where: str, value: object, choices: object) -> None:
    """Refuse what is none of an option's choices with a message that lists them, which msgspec's does not."""
    if not (isinstance(choices, type) and issubclass(choices, Enum)):
        return
    names = tuple(str(choice.value) for choice in choices)
    if not isinstance(value, str):
        raise PolicyError(f"{where}: found {_shown(value)}, expected one of {', '.join(names)}")
    if value not in names:
        raise PolicyError(f"{where}: {not_one_of(value, names, 'one of its choices')}")


def _shown(value: object) -> str:
    return quote(value) if isinstance(value, str) else one_line(repr(value))[:LONGEST_SHOWN]


def _import(load: Callable[[], object], origin: str) -> object:
    try:
        return load()
    except Exception as error:  # whatever a user's module raises while it is imported is the user's to see, in one line
        raise PolicyError(f"{origin}: cannot be imported: {type(error).__name__}: {one_line(str(error))}") from error


def _add(types: dict[str, type[Policy]], origin: str, found: tuple[object, ...]) -> None:
    policies = [each for each in found if isinstance(each, type) and issubclass(each, Policy)]
    if not policies:
        raise PolicyError(f"{origin}: holds no subclass of vdnnsim.policies.port.Policy")
    for policy in policies:
        if policy.name in types:
            raise PolicyError(f"{origin}: the name {policy.name!r} is taken by {types[policy.name].__module__}")
        types[policy.name] = policy
