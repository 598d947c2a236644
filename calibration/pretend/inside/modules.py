"""Labels of PyTorch's memory history with the running module, in forward and backward, without changing allocations.

Forward has global hooks. Backward reaches a module when the gradient arrives at the autograd node of its output;
backward hooks of modules would add a node around each.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers

from .peak import label
from .user_lines import user_line_here

_MARK = "vdnnsim"


class ModuleLabels:
    """Labels the memory history of each thread with the module that it runs."""

    def __init__(self) -> None:
        self._paths: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._running = threading.local()
        self._passes = 0
        self._handles = (
            hooks.register_module_forward_pre_hook(self._enters),
            hooks.register_module_forward_hook(self._leaves, always_call=True),
            optimizers.register_optimizer_step_pre_hook(self._begins_step),
            optimizers.register_optimizer_step_post_hook(self._ends_step),
        )

    def leave_modules(self) -> None:
        """Label the optimizer and what is `labelled` alone."""
        for handle in self._handles[:2]:
            handle.remove()

    def labelled(self, phase: str, what: str) -> AbstractContextManager[None]:
        """Label what is allocated within, in this thread."""
        return memory_labelled(label(self._passes, phase, what))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _stack(self) -> list[str]:
        if not hasattr(self._running, "stack"):
            self._running.stack = []
        stack: list[str] = self._running.stack
        return stack

    def _enters(self, module: nn.Module, _inputs: object) -> None:
        stack = self._stack()
        if not stack and not _in_backward():
            self._passes += 1
        if module not in self._paths:
            outside = stack[-1] if stack else ""
            for name, each in module.named_modules():
                path = ".".join(filter(None, (outside, type(module).__name__, name)))
                self._paths.setdefault(each, path)
        stack.append(self._paths[module])
        self._label(stack)

    def _leaves(self, _module: nn.Module, _inputs: object, output: object) -> None:
        stack = self._stack()
        path = stack.pop()
        line = user_line_here()
        for tensor in _tensors(output):
            node = tensor.grad_fn
            # A container's output is that of its last module, which is marked already.
            if node is None:
                continue
            marks: Any = node.metadata
            if _MARK not in marks:
                marks[_MARK] = True
                node.register_prehook(partial(self._reaches, label(self._passes, "backward", path, line)))
        self._label(stack)

    def _label(self, stack: list[str]) -> None:
        if stack:
            phase, module = "recomputation" if _in_backward() else "forward", stack[-1]
        else:
            phase, module = "backward" if _in_backward() else "", ""
        _set_metadata(label(self._passes, phase, module))

    @staticmethod
    def _reaches(text: str, _gradients: object) -> None:
        _set_metadata(text)

    def _begins_step(self, _optimizer: Optimizer, _arguments: object, _names: object) -> None:
        _set_metadata(label(self._passes, "optimizer"))

    def _ends_step(self, _optimizer: Optimizer, _arguments: object, _names: object) -> None:
        _set_metadata(label(self._passes))


@contextmanager
def memory_labelled(text: str) -> Iterator[None]:
    """Label allocations within in PyTorch's memory history."""
    before = torch.cuda.memory._get_memory_metadata()  # noqa: SLF001  # its only form
    _set_metadata(text)
    try:
        yield
    finally:
        _set_metadata(before)


def _set_metadata(text: str) -> None:
    torch.cuda.memory._set_memory_metadata(text)  # noqa: SLF001  # its only form


def _in_backward() -> bool:
    running: int = torch._C._current_graph_task_id()  # noqa: SLF001  # PyTorch says it nowhere else
    return running != -1


def _tensors(output: Any) -> Iterator[torch.Tensor]:  # noqa: ANN401  # a module returns anything
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        for each in output.values():
            yield from _tensors(each)
    elif isinstance(output, list | tuple):
        for each in output:
            yield from _tensors(each)
