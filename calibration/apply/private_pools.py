"""Private pools of PyTorch's allocator, from which a planned loop allocates what has its addresses there."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import local
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from calibration.apply.copy_stream import refuse_graph_capture
from calibration.apply.model_discovery import optimizers_of


class PrivatePools:
    """Pools by number, from 1 on; 0 is PyTorch's own. Each thread has one in use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pools: dict[int, torch.cuda.MemPool] = {}
        self._thread = local()

    def use(self, number: int) -> int:
        """Allocate from a pool in this thread from now on; return the number of the one before.

        PyTorch takes the pool that has been in use longest, so only one is at a time.

        Raises:
            ExecutionRefused: the current stream is captured into a CUDA graph, and it is a private pool.
        """
        before: int = getattr(self._thread, "number", 0)
        if number != before:
            if number:
                refuse_graph_capture()
            self._thread.number = number
            if before:
                self._thread.context.__exit__(None, None, None)
            if number:
                self._thread.context = torch.cuda.use_mem_pool(self._pool(number), self._device)
                self._thread.context.__enter__()
        return before

    def using(self, number: int) -> AbstractContextManager[None]:
        return nullcontext() if number == getattr(self._thread, "number", 0) else self._within(number)

    @contextmanager
    def _within(self, number: int) -> Iterator[None]:
        before = self.use(number)
        try:
            yield
        finally:
            self.use(before)

    def _pool(self, number: int) -> torch.cuda.MemPool:
        if number not in self._pools:
            self._pools[number] = torch.cuda.MemPool()
        return self._pools[number]


def has_states(model: nn.Module) -> bool:
    return any(each.state for each in optimizers_of(model))


class FirstUpdate:
    """Makes the states of each optimizer of a model in a pool of its own.

    Optimizers of `torch.optim` make them in `_init_group`, but for SGD; of all others the whole first update uses it.
    """

    def __init__(self, model: nn.Module, pools: PrivatePools, number: int) -> None:
        self._parameters = set(map(id, model.parameters()))
        self._pools, self._number = pools, number
        hooks = register_optimizer_step_pre_hook(self._begins), register_optimizer_step_post_hook(self._ends)
        self._hooks = [*hooks]
        self._before = 0
        self._initializing: list[torch.optim.Optimizer] = []

    def _begins(self, optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:  # noqa: ANN401 - arguments of `step`
        if optimizer.state or not self._is_of_model(optimizer):
            return
        init: Callable[..., Any] | None = getattr(optimizer, "_init_group", None)
        if init is None or isinstance(optimizer, torch.optim.SGD):
            self._before = self._pools.use(self._number)
            return

        def within(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the optimizer
            with self._pools.using(self._number):
                return init(*args, **kwargs)

        self._initializing.append(optimizer)
        vars(optimizer)["_init_group"] = within

    def _ends(self, optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:  # noqa: ANN401 - as above
        if self._is_of_model(optimizer):
            # Hooks are removed later: PyTorch iterates over them now.
            self._pools.use(self._before)
            self._before = 0
            self._restore()

    def end(self) -> None:
        """Remove the hooks, also after an update that failed."""
        self._pools.use(0)
        self._restore()
        while self._hooks:
            self._hooks.pop().remove()

    def _restore(self) -> None:
        while self._initializing:
            del vars(self._initializing.pop())["_init_group"]

    def _is_of_model(self, optimizer: torch.optim.Optimizer) -> bool:
        return any(id(each) in self._parameters for group in optimizer.param_groups for each in group["params"])
