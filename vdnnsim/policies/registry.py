"""The policies by name: those shipped here, those of installed packages, those of a module that the user names.

A new policy is one file and one line in `_SHIPPED`. A policy of one's own is a subclass of
`vdnnsim.policies.port.Policy`, either in a module given with `--policy-module NAME`, or behind an entry point of the
group `vdnnsim.policies`. A scenario file only ever names policies: YAML never imports code.
"""

import importlib
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from importlib.metadata import entry_points
from typing import TypeVar, cast
from weakref import WeakSet

import msgspec

from vdnnsim.errors import PolicyError, VdnnsimError
from vdnnsim.messages import describe, not_one_of, one_line, quote
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.base import Base
from vdnnsim.policies.boundary_search import BoundarySearch
from vdnnsim.policies.caffe import Caffe
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.geeps import GeePS
from vdnnsim.policies.layrub_hybrid import LayrubHybrid
from vdnnsim.policies.layrub_inter import LayrubInter
from vdnnsim.policies.layrub_intra import LayrubIntra
from vdnnsim.policies.memonger import Memonger
from vdnnsim.policies.options import check_option, option_value
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.port import Policy, Setting
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.resident import Resident
from vdnnsim.policies.save_on_cpu import SaveOnCpu
from vdnnsim.policies.short_form import parse_short_form
from vdnnsim.policies.superneurons import SuperNeurons
from vdnnsim.policies.swap import StaggeredSwap, Swap
from vdnnsim.policies.tensorflow import TensorFlow
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv
from vdnnsim.policies.vdnn_dyn import VdnnDyn
from vdnnsim.policies.vdnn_pp import VdnnPlusPlus

_Made = TypeVar("_Made")

PolicyTypes = Mapping[str, type[Policy]]
"""Policy classes by name."""

_SHIPPED: tuple[type[Policy], ...] = (
    Base,
    Resident,
    VdnnAll,
    VdnnConv,
    VdnnDyn,
    VdnnPlusPlus,
    BoundarySearch,
    PageMigration,
    Swap,
    StaggeredSwap,
    Caffe,
    TensorFlow,
    LayrubIntra,
    LayrubInter,
    LayrubHybrid,
    GeePS,
    Memonger,
    Checkpoint,
    PyTorch,
    SaveOnCpu,
    SuperNeurons,
    Accumulate,
)
_ENTRY_POINT_GROUP = "vdnnsim.policies"
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NAME = re.compile(r"\w{1,100}")
_GUARDED: WeakSet[Callable[..., object]] = WeakSet()


def known_policies(modules: Iterable[str] = ()) -> PolicyTypes:
    """Return all policies: shipped, from entry points, and from the named modules, later ones not hiding earlier.

    Raises:
        PolicyError: a module or entry point cannot be imported, holds no policy, an incomplete one, or one whose name
            is taken by another.
    """
    types = {policy.name: policy for policy in _SHIPPED}
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
        raise PolicyError(f"{name}: {_exception(error)}") from error


def _import(load: Callable[[], object], origin: str) -> object:
    try:
        return load()
    except SystemExit as error:
        raise PolicyError(f"{origin}: cannot be imported: it calls sys.exit({one_line(repr(error.code))})") from error
    except Exception as error:  # whatever a user's module raises while it is imported is the user's to see, in one line
        raise PolicyError(f"{origin}: cannot be imported: {_exception(error)}") from error


def _add(types: dict[str, type[Policy]], origin: str, found: tuple[object, ...]) -> None:
    policies = [each for each in found if isinstance(each, type) and issubclass(each, Policy)]
    if not policies:
        raise PolicyError(f"{origin}: holds no subclass of vdnnsim.policies.port.Policy")
    for policy in policies:
        _check_class(policy, f"{origin}: class {policy.__name__}")
        taken = types.setdefault(policy.name, policy)
        if taken is not policy:
            raise PolicyError(f"{origin}: the name {policy.name!r} is taken by {taken.__module__}")
        _guard(policy)


def _check_class(policy: type[Policy], where: str) -> None:
    """Refuse a class that cannot be listed or run; msgspec builds instances of it all the same."""
    name, summary, plan = (getattr(policy, member, None) for member in ("name", "summary", "plan"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PolicyError(f'{where}: expected `name: ClassVar[str] = "..."`, of letters, digits and _')
    if not isinstance(summary, str) or not summary.strip() or not summary.isprintable():
        raise PolicyError(f'{where}: expected `summary: ClassVar[str] = "..."`, of one line')
    if not callable(plan) or getattr(plan, "__isabstractmethod__", False):
        raise PolicyError(f"{where}: has no method plan(self, setting) that returns a TrainingPlan")


def _guard(policy: type[Policy]) -> None:
    """Make what fails in a user's policy say which it is; the frames, which its author needs, are in a note."""
    policy.plan = _guarded("plan", policy.plan, _checked_plan)  # type: ignore[assignment, method-assign]
    policy.plans = _guarded("plans", policy.plans, _checked_plans)  # type: ignore[assignment, method-assign]


def _guarded(
    member: str, method: Callable[[Policy, Setting], object], checked: Callable[[object, Setting], _Made]
) -> Callable[[Policy, Setting], _Made]:
    """Return a method of a policy that checks what it made; one of ours, or one that does so already, as it is."""
    if method in _GUARDED or method.__module__.startswith("vdnnsim."):
        return cast("Callable[[Policy, Setting], _Made]", method)

    @wraps(method)
    def guarded(self: Policy, setting: Setting) -> _Made:
        try:
            return checked(method(self, setting), setting)
        except VdnnsimError as error:
            if str(error).startswith(f"{self.label}: "):
                raise
            raise PolicyError(f"{self.label}: {member}: {error}") from error
        except Exception as error:
            failure = PolicyError(f"{self.label}: {member}: {_exception(error)}")
            failure.add_note(traceback.format_exc())
            raise failure from error

    _GUARDED.add(guarded)
    return guarded


def _checked_plan(made: object, _: Setting) -> TrainingPlan:
    if not isinstance(made, TrainingPlan):
        raise PolicyError(f"found {describe(made)}, expected a TrainingPlan")
    return made


def _checked_plans(made: object, setting: Setting) -> tuple[TrainingPlan, ...]:
    if not isinstance(made, tuple):
        raise PolicyError(f"found {describe(made)}, expected a tuple of TrainingPlans")
    if len(made) != setting.gpus:
        raise PolicyError(f"found {len(made)} plans, expected {setting.gpus}, one for each GPU")
    return tuple(_checked_plan(plan, setting) for plan in made)


def _exception(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(str(error))}".removesuffix(": ")
