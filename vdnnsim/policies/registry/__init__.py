"""The policies by name: those shipped here, those of installed packages, those of a module that the user names.

Those shipped stand in `vdnnsim.policies.shipped`. A policy of one's own is a subclass of
`vdnnsim.policies.port.Policy`, either in a module given with `--policy-module NAME`, or behind an entry point of the
group `vdnnsim.policies`. A scenario file only ever names policies: YAML never imports code.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import entry_points

import msgspec

from vdnnsim.errors import PolicyError
from vdnnsim.messages import describe, describe_exception, not_one_of, one_line, quote
from vdnnsim.policies.port import DecidedBy, Policy
from vdnnsim.policies.registry.options import check_option, option_value, parse_short_form
from vdnnsim.policies.shipped import SHIPPED

PolicyTypes = Mapping[str, type[Policy]]
"""Policy classes by name."""

_ENTRY_POINT_GROUP = "vdnnsim.policies"
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NAME = re.compile(r"\w{1,100}")


def known_policies(modules: Iterable[str] = ()) -> PolicyTypes:
    """Return all policies: shipped, from entry points, and from the named modules, later ones not hiding earlier.

    Raises:
        PolicyError: a module or entry point cannot be imported, holds no policy, an incomplete one, or one whose name
            is taken by another.
    """
    types = {policy.name: policy for policy in SHIPPED}
    for entry in entry_points(group=_ENTRY_POINT_GROUP):
        _add(types, f"entry point {entry.name!r}", (_import(entry.load, f"entry point {entry.name!r}"),))
    for module in modules:
        origin = f"policy module {quote(module)}"
        if not _MODULE.fullmatch(module) or module.endswith(".py"):
            raise PolicyError(f"{origin}: expected the name of a module as in Python's import, not of a file")
        namespace = vars(_import(partial(importlib.import_module, module), origin))
        own = (value for value in namespace.values() if getattr(value, "__module__", None) == namespace["__name__"])
        _add(types, origin, tuple(own))
    return types


def resolve_policy(spec: object, types: PolicyTypes) -> Policy:
    """Return the policy that a scenario asks for: `vdnn_all(m)`, or a mapping `{policy: vdnn_all, algorithms: m}`.

    In one line it may be asked for as its label reads: `vdnn_all(m, prefetch_search=fig10_without_pool)`.

    Raises:
        PolicyError: the form, the name, or an option is wrong.
    """
    match spec:
        case str() if short := parse_short_form(spec):
            name, texts = short
            kinds = {field.name: field.type for field in msgspec.structs.fields(types[name])} if name in types else {}
            options = {key: option_value(text, kinds.get(key)) for key, text in texts.items()}
        case {"policy": str(name), **rest}:
            options = {str(key): value for key, value in rest.items()}
        case _:
            # A list of YAML in one line is parted at every comma.
            parted = "; one with a comma needs quotes" if isinstance(spec, str) and "(" in spec else ""
            raise PolicyError(
                f"found {describe(spec)}, expected a policy as vdnn_all(m) or a mapping with the key policy{parted}"
            )
    if name not in types:
        raise PolicyError(f"{not_one_of(name, tuple(types), 'a policy')}; --policy-module imports your own")
    fields = {field.name: field for field in msgspec.structs.fields(types[name])}
    for key, value in options.items():
        if key not in fields:
            raise PolicyError(f"{name}: {not_one_of(key, tuple(fields), 'an option')}")
        check_option(f"{name}: {key}", value, fields[key])
    try:
        return msgspec.convert(options, types[name])
    except msgspec.ValidationError as error:
        raise PolicyError(f"{name}: {error}") from None
    except Exception as error:  # of the __post_init__ of a user's policy
        raise PolicyError(f"{name}: {describe_exception(error)}") from error


def _import(load: Callable[[], object], origin: str) -> object:
    try:
        return load()
    except SystemExit as error:
        raise PolicyError(f"{origin}: cannot be imported: it calls sys.exit({one_line(repr(error.code))})") from error
    except Exception as error:  # whatever a user's module raises while it is imported is the user's to see, in one line
        raise PolicyError(f"{origin}: cannot be imported: {describe_exception(error)}") from error


def _add(types: dict[str, type[Policy]], origin: str, found: tuple[object, ...]) -> None:
    policies = [each for each in found if isinstance(each, type) and issubclass(each, Policy)]
    if not policies:
        raise PolicyError(f"{origin}: holds no subclass of vdnnsim.policies.port.Policy")
    for policy in policies:
        _check_class(policy, f"{origin}: class {policy.__name__}")
        taken = types.setdefault(policy.name, policy)
        if taken is not policy:
            raise PolicyError(f"{origin}: the name {policy.name!r} is taken by {taken.__module__}")


def _check_class(policy: type[Policy], where: str) -> None:
    """Refuse a class that cannot be listed or run; msgspec builds instances of it all the same."""
    members = ("name", "summary", "decided_by", "plan")
    name, summary, decided_by, plan = (getattr(policy, member, None) for member in members)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PolicyError(f'{where}: expected `name: ClassVar[str] = "..."`, of letters, digits and _')
    if not isinstance(summary, str) or not summary.strip() or not summary.isprintable():
        raise PolicyError(f'{where}: expected `summary: ClassVar[str] = "..."`, of one line')
    if not isinstance(decided_by, DecidedBy | property):
        raise PolicyError(f"{where}: expected `decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS`, MEMORY or TRIALS")
    if not callable(plan) or getattr(plan, "__isabstractmethod__", False):
        raise PolicyError(f"{where}: has no method plan(self, setting) that returns a TrainingPlan")
