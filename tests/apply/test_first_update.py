"""Which allocations of a first update use the pool of optimizer states."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from calibration.apply.private_pools import FirstUpdate, PrivatePools

STATES = 1


class Pools(PrivatePools):
    """Pools that only know which one is in use."""

    def __init__(self) -> None:
        self.number = 0

    def use(self, number: int) -> int:
        before, self.number = self.number, number
        return before

    @contextmanager
    def using(self, number: int) -> Iterator[None]:
        before = self.use(number)
        yield
        self.use(before)


class Gradient(torch.Tensor):
    """Tells at each operator on it what pool is in use."""

    pools: ClassVar[Pools] = Pools()
    seen: ClassVar[list[tuple[str, int]]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if func.__name__ in ("zeros_like", "clone", "mul", "mul_", "lerp_", "add_"):
            cls.seen.append((func.__name__, cls.pools.number))
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("kind", "options", "made", "others"),
    [(torch.optim.AdamW, {}, "zeros_like", 0), (torch.optim.SGD, {"momentum": 0.9}, "clone", STATES)],
)
def test_states_alone_are_made_in_their_pool_where_they_are_made_first(
    kind: Any,  # noqa: ANN401 - a class of torch.optim
    options: dict[str, Any],
    made: str,
    others: int,
) -> None:
    """AdamW makes both moments in `_init_group` and then computes; SGD clones gradients amid its update.

    The second update makes none, and the optimizer is left as it was.
    """
    model, pools = nn.Linear(2, 2, bias=False), Pools()
    Gradient.pools = pools
    model.weight = nn.Parameter(torch.zeros(2, 2).as_subclass(Gradient))
    optimizer = kind(model.parameters(), lr=0.1, foreach=False, **options)
    first = FirstUpdate(model, pools, STATES)
    updates = list[list[tuple[str, int]]]()
    for _ in range(2):
        model.weight.grad = torch.ones(2, 2).as_subclass(Gradient)
        Gradient.seen = []
        optimizer.step()
        updates.append(Gradient.seen)
        assert pools.number == 0
    first.end()
    assert {number for name, number in updates[0] if name == made} == {STATES}
    assert {number for name, number in updates[0] if name != made} == {others}
    assert {number for _, number in updates[1]} == {0}
    assert "_init_group" not in vars(optimizer)
