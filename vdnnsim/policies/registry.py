"""The policies by name: those shipped here, those of installed packages, those of a module that the user names.

A new policy is one file and one line in `_SHIPPED`. A policy of one's own is a subclass of
`vdnnsim.policies.port.Policy`, either in a module given with `--policy-module NAME`, or behind an entry point of the
group `vdnnsim.policies`. A scenario file only ever names policies: YAML never imports code.
"""

import difflib
import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import entry_points

import msgspec

from vdnnsim.errors import PolicyError
from vdnnsim.policies.base import Base
from vdnnsim.policies.port import Policy
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv
from vdnnsim.policies.vdnn_dyn import VdnnDyn

PolicyTypes = Mapping[str, type[Policy]]
"""Policy classes by name."""

_SHIPPED: tuple[type[Policy], ...] = (Base, VdnnAll, VdnnConv, VdnnDyn)
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
        case str():
            match = _SHORT_FORM.fullmatch(spec.strip())
            if match is None:
                message = f"found {spec!r}, expected a policy as vdnn_all(m) or a mapping with the key policy"
                raise PolicyError(message)
            name, options = match[1], {} if match[2] is None else {"algorithms": match[2]}
        case {"policy": str(name), **rest}:
            options = {str(key): value for key, value in rest.items()}
        case _:
            message = f"found {spec!r}, expected a policy as vdnn_all(m) or a mapping with the key policy"
            raise PolicyError(message)
    if name not in types:
        near = difflib.get_close_matches(name, types, n=1, cutoff=0.0)[0]
        message = f"{name!r} is not a policy; did you mean {near!r}? ({', '.join(types)})"
        raise PolicyError(message)
    policy = types[name]
    for key in options:
        if key not in policy.__struct_fields__:
            allowed = ", ".join(policy.__struct_fields__)
            message = f"{name} has no option {key!r}; it has: {allowed or 'none'}"
            raise PolicyError(message)
    try:
        return msgspec.convert(options, policy)
    except msgspec.ValidationError as error:
        message = f"{name}: {error}"
        raise PolicyError(message) from None


def _import(load: Callable[[], object], origin: str) -> object:
    try:
        return load()
    except Exception as error:  # whatever a user's module raises while it is imported is the user's to see, in one line
        message = f"{origin}: cannot be imported: {type(error).__name__}: {error}"
        raise PolicyError(message) from error


def _add(types: dict[str, type[Policy]], origin: str, found: tuple[object, ...]) -> None:
    policies = [each for each in found if isinstance(each, type) and issubclass(each, Policy)]
    if not policies:
        message = f"{origin}: holds no subclass of vdnnsim.policies.port.Policy"
        raise PolicyError(message)
    for policy in policies:
        if policy.name in types:
            message = f"{origin}: the name {policy.name!r} is taken by {types[policy.name].__module__}"
            raise PolicyError(message)
        types[policy.name] = policy
