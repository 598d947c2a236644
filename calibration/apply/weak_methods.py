"""Methods that may be called while their object lives, and do not make it live."""

import weakref
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def weakly(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a bound method without a reference to its object, which whoever calls it knows to live."""
    reference = weakref.WeakMethod(method)

    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        bound = reference()
        assert bound is not None, "its object lives"
        return bound(*args, **kwargs)

    return call
