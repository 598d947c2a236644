"""The policies by name: the built-in ones, those of installed packages, and those of modules that the user names.

A user's policy is a subclass of `vdnnsim.policies.interface.Policy`, either in a module given with
`--policy-module NAME`, or behind an entry point of the group `vdnnsim.policies`. Python also takes an object of it in
place of a name. A scenario file only ever names policies: YAML never imports code.

The short form of a policy is its label in results: `vdnn_all(m)`, `swap(p, interval=2, stagger=True)`.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from importlib.metadata import entry_points
from typing import Final

import msgspec
from msgspec.structs import FieldInfo

from vdnnsim.errors import PolicyError
from vdnnsim.files.messages import describe, describe_exception, not_one_of, one_line, quote
from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.base import Base, Resident
from vdnnsim.policies.boundary_search import BoundarySearch
from vdnnsim.policies.caffe import Caffe
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.geeps import GeePS
from vdnnsim.policies.interface import DecidedBy, Policy
from vdnnsim.policies.layrub import LayrubHybrid, LayrubInter, LayrubIntra
from vdnnsim.policies.memonger import Memonger
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu
from vdnnsim.policies.superneurons import SuperNeurons
from vdnnsim.policies.swap import StaggeredSwap, Swap
from vdnnsim.policies.tensorflow import TensorFlow
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, VdnnDyn
from vdnnsim.policies.vdnn_pp import VdnnPlusPlus

BUILT_IN: Final[tuple[type[Policy], ...]] = (
    *(Base, Resident, VdnnAll, VdnnConv, VdnnDyn, VdnnPlusPlus, BoundarySearch, Optimal, PageMigration),
    *(Swap, StaggeredSwap, Caffe, TensorFlow, LayrubIntra, LayrubInter, LayrubHybrid, GeePS),
    *(Memonger, Checkpoint, PyTorch, SaveOnCpu, SuperNeurons, Accumulate),
)
"""In the order of `vdnnsim list policies`: a new policy is its file and a name here."""

PolicyTypes = Mapping[str, type[Policy]]

_ENTRY_POINT_GROUP = "vdnnsim.policies"
_ADVICE: Final = "; --policy-module, in Python policy_module of vdnnsim.load, imports your own"
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NAME = re.compile(r"\w{1,100}")
_PLAIN_TYPES: dict[object, str] = {str: "text", bool: "true or false", int: "an integer", float: "a number"}
"""Names of option types in messages."""

_SHORT_FORM = re.compile(r"(\w+)\s*(?:\(([^()]*)\))?")
_OPENING, _CLOSING = "({[", ")}]"


def known_policies(modules: Iterable[str] = ()) -> PolicyTypes:
    """Return all policies: built in, from entry points, and from the named modules, later ones not hiding earlier.

    Raises:
        PolicyError: a module or entry point cannot be imported, holds no policy, an incomplete one, or one whose name
            is taken by another.
    """
    types = {policy.name: policy for policy in BUILT_IN}
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


def resolve_policy(spec: object, types: PolicyTypes, advice: str = _ADVICE) -> Policy:
    """Return the policy of a label, as `vdnn_all(m)`, or of a mapping, as `{policy: vdnn_all, algorithms: m}`.

    A policy itself is returned as it is, once its class was checked like one of a module.
    `advice` ends the message of a name that is unknown.

    Raises:
        PolicyError: the form, the name, or an option is wrong.
    """
    match spec:
        case Policy():
            _add(dict(types), f"policy of {type(spec).__module__}", (type(spec),))
            return spec
        case str() if short := _parse_short_form(spec):
            name, options = short
        case {"policy": str(name), **rest}:
            options = {str(key): value for key, value in rest.items()}
        case _:
            # YAML splits a flow sequence at every comma.
            parted = "; one with a comma needs quotes" if isinstance(spec, str) and "(" in spec else ""
            raise PolicyError(
                f"found {describe(spec)}, expected a policy as vdnn_all(m) or a mapping with the key policy{parted}"
            )
    if name not in types:
        raise PolicyError(f"{not_one_of(name, tuple(types), 'a policy')}{advice}")
    fields = {field.name: field for field in msgspec.structs.fields(types[name])}
    for key, value in options.items():
        if key not in fields:
            raise PolicyError(f"{name}: {not_one_of(key, tuple(fields), 'an option')}")
        _check_option(f"{name}: {key}", value, fields[key], is_text=isinstance(spec, str))
    try:
        return msgspec.convert(options, types[name], strict=not isinstance(spec, str))
    except msgspec.ValidationError as error:
        raise PolicyError(f"{name}: {error}") from None
    except Exception as error:  # of the __post_init__ of a user's policy
        raise PolicyError(f"{name}: {describe_exception(error)}") from error


def _import(load: Callable[[], object], origin: str) -> object:
    try:
        return load()
    except SystemExit as error:
        raise PolicyError(f"{origin}: cannot be imported: it calls sys.exit({one_line(repr(error.code))})") from error
    except Exception as error:  # whatever a user's module raises
        raise PolicyError(f"{origin}: cannot be imported: {describe_exception(error)}") from error


def _add(types: dict[str, type[Policy]], origin: str, found: tuple[object, ...]) -> None:
    policies = [each for each in found if isinstance(each, type) and issubclass(each, Policy)]
    if not policies:
        raise PolicyError(f"{origin}: holds no subclass of vdnnsim.policies.interface.Policy")
    for policy in policies:
        _check_class(policy, f"{origin}: class {policy.__name__}")
        taken = types.setdefault(policy.name, policy)
        if taken is not policy:
            raise PolicyError(f"{origin}: the name {policy.name!r} is taken by {taken.__module__}")


def _check_class(policy: type[Policy], where: str) -> None:
    """Refuse a class that cannot be listed or run, which msgspec would accept."""
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


def describe_options(policy: type[Policy]) -> str:
    """Return the options of a policy with their values, the default first: `algorithms: p | m | tensorflow`."""
    return ", ".join(f"{field.name}: {_values(field)}" for field in msgspec.structs.fields(policy))


def _parse_short_form(text: str) -> tuple[str, dict[str, object]] | None:
    """Return the name and the options of a short form, whose first option may be the algorithms without a name."""
    match = _SHORT_FORM.fullmatch(text.strip())
    if match is None:
        return None
    options: dict[str, object] = {}
    for number, option in enumerate([] if match[2] is None else match[2].split(",")):
        key, equals, value = (part.strip() for part in option.partition("="))
        if not equals:
            key, value = "algorithms", key
        if key in options or (not equals and number):
            return None
        options[key] = value
    return match[1], options


def split_policies(text: str) -> list[str]:
    """Split a text at commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _check_option(where: str, value: object, field: FieldInfo, *, is_text: bool) -> None:
    """Refuse a wrong value of an option with what would be right, which msgspec's message lacks.

    Raises:
        PolicyError: the value is wrong; the message begins with `where`.
    """
    if _is_enum(field.type):
        names = tuple(str(choice.value) for choice in field.type)
        if not isinstance(value, str):
            raise PolicyError(f"{where}: found {describe(value)}, expected one of {', '.join(names)}")
        if value not in names:
            raise PolicyError(f"{where}: {not_one_of(value, names, 'one of its choices')}")
    elif what := _PLAIN_TYPES.get(field.type):
        try:
            msgspec.convert(value, field.type, strict=not is_text)
        except msgspec.ValidationError:
            example = "" if field.default is msgspec.NODEFAULT else f", as {describe(field.default)}"
            raise PolicyError(f"{where}: found {describe(value)}, expected {what}{example}") from None


def _values(field: FieldInfo) -> str:
    if not _is_enum(field.type):
        return "..." if field.default is msgspec.NODEFAULT else _shown(field.default)
    values = [str(choice.value) for choice in field.type]
    if isinstance(field.default, Enum):
        values.sort(key=lambda value: value != str(field.default.value))
    return " | ".join(values)


def _is_enum(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _shown(default: object) -> str:
    return one_line(default) if isinstance(default, str) else describe(default)
