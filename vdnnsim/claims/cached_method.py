"""A decorator that caches what a method returns in its object, as the replays of a paper."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def cached_method(method: Callable[Concatenate[Any, Arguments], Made]) -> Callable[Concatenate[Any, Arguments], Made]:
    """Cache the results of a method in its object, by arguments; they are freed with it."""

    @wraps(method)
    def make(self: Any, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Made:  # noqa: ANN401  # any replays
        made = vars(self).setdefault(f"_made_by_{method.__name__}", {})
        key = arguments, tuple(named.items())
        if key not in made:
            made[key] = method(self, *arguments, **named)
        found: Made = made[key]
        return found

    return make
