"""Machines, policies, memory and precisions by their names in arguments."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vdnnsim.errors import CaptureError, DeviceError, InputError, PolicyError, ProfileError
from vdnnsim.files.messages import describe
from vdnnsim.files.value import Entry
from vdnnsim.units import Precision

if TYPE_CHECKING:
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.hardware.server import Server
    from vdnnsim.memory.choices import MemoryChoice
    from vdnnsim.policies.interface import Policy

    PolicyName = str | Policy
    PolicyNames = PolicyName | Sequence[PolicyName]

_Value = TypeVar("_Value")
OWN_POLICY = "; of your own, give an object, as MyPolicy()"
"""Ends the message of a name of a policy that is unknown."""


def precision_named(precision: Any) -> Precision:  # noqa: ANN401  # whatever a user passes
    """Return a precision by its name, or raise CaptureError, which for a type of PyTorch says its names."""
    if type(precision).__name__ == "dtype":
        name = str(precision).removeprefix("torch.")
        names = [repr(each.value) for each in Precision if each.value.endswith(name)]
        if names:
            ways = " or, under autocast, ".join(names)
            raise CaptureError(f"precision: found {precision}, expected {ways}")
    return Entry("", "precision", precision, CaptureError).choice(Precision, "a precision")


def machines_named(hardware: Sequence[str], folder: Path, gpus: int = 1) -> "Sequence[Profile]":
    """Return profiles by name or path, found beside a folder; by default one for each card, with enough GPUs."""
    from vdnnsim.hardware.profile import shipped_profiles
    from vdnnsim.study.machines import one_of_each_card

    named = [profile_named(each, folder) for each in hardware]
    return named or one_of_each_card(shipped_profiles(), gpus)


def profile_named(hardware: object, folder: Path) -> "Profile":
    """Return a profile by name or path, found beside a folder, or raise ProfileError."""
    from vdnnsim.cost.model import checked_profile
    from vdnnsim.hardware.profile import find_profile

    if not isinstance(hardware, str | Path):
        raise ProfileError(f"hardware: found {describe(hardware)}, expected the name of a profile, as 'rtx_4090'")
    return checked_profile(find_profile(str(hardware), folder))


def policies_named(names: "PolicyNames") -> "tuple[Policy, ...]":
    """Return policies by their names in scenarios; objects of a class of policies stand for themselves."""
    from vdnnsim.policies.interface import Policy
    from vdnnsim.policies.registry import known_policies, resolve_policy

    if not names:
        raise PolicyError("policy: found none, expected a name, as 'pytorch', or several")
    known = known_policies()
    several = [names] if isinstance(names, str | Policy) else names
    return tuple(resolve_policy(each, known, advice=OWN_POLICY) for each in several)


def profile_of(hardware: str, card: str, *, is_gpu: bool) -> "Profile":
    """Return a profile by name, or that of a card, or raise DeviceError where there is none of it."""
    from vdnnsim.cost.model import checked_profile
    from vdnnsim.hardware.profile import find_profile, profile_of_card

    if hardware != "auto":
        return checked_profile(find_profile(hardware, Path()))
    if (found := profile_of_card(card)) is not None:
        return found
    expected = "expected the name of a profile, as 'rtx_4090'; `vdnnsim list hardware` has all"
    if not is_gpu:
        raise DeviceError(f"hardware: the model is on the {card}, {expected}")
    raise DeviceError(f"hardware: there is no profile of {card}, {expected}")


def chosen_memory_model(text: str) -> "MemoryChoice":
    """Return a memory model by its name, or raise CaptureError where there is none of this name."""
    from vdnnsim.memory.choices import memory_choice

    return read_argument("memory_model", memory_choice, text)


def read_argument(word: str, read: Callable[..., _Value], *given: object) -> _Value:
    """Return the value of an argument, or raise CaptureError with its word before the reader's message."""
    try:
        return read(*given)
    except InputError as failure:
        raise CaptureError(f"{word}: {failure}") from None


def with_memory(profile: "Profile", memory: str | None) -> "Server":
    """Return the server of a profile, with a memory limit of PyTorch."""
    from vdnnsim.units import Dimension, parse_quantity

    server = profile.server
    if memory is None:
        return server
    nbytes = int(read_argument("memory", parse_quantity, memory, Dimension.BYTES)) + server.gpu.context_bytes
    return replace(server, gpu=replace(server.gpu, memory_bytes=nbytes))
