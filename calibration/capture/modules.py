"""Which module of a model is running, by its path."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from vdnnsim.dnn.step import Module


class ModuleTracker:
    """Follows the forward of a model; a module that stands at several paths has the first."""

    def __init__(self, model: nn.Module) -> None:
        named = list(model.named_modules())
        self.modules = tuple(Module(path, f"{type(each).__module__}.{type(each).__qualname__}") for path, each in named)
        self._positions = {id(each): position for position, (_, each) in enumerate(named)}
        # Held, so that no other module takes the identity of one that a model drops.
        self._held = [each for _, each in named]
        self._running = [0]

    @property
    def running(self) -> int:
        """Position of the module whose forward runs; 0, that of the model, outside of all."""
        return self._running[-1]

    @property
    def path(self) -> str:
        """Of the module whose forward runs."""
        return self.modules[self.running].path

    def of_parameters(self) -> dict[int, tuple[int, str]]:
        """Return by the identity of each parameter and buffer the position of its first owner and its path."""
        owners: dict[int, tuple[int, str]] = {}
        for position, module in enumerate(self._held):
            path = self.modules[position].path
            for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
                owners.setdefault(id(tensor), (position, f"{path}.{name}" if path else name))
        return owners

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow what runs within."""

        def enter(module: nn.Module, _: Any) -> None:  # noqa: ANN401 - its arguments
            self._running.append(self._positions.get(id(module), self.running))

        def leave(_: nn.Module, __: Any, ___: Any) -> None:  # noqa: ANN401 - its arguments and results
            self._running.pop()

        entering = register_module_forward_pre_hook(enter)
        leaving = register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            entering.remove()
            leaving.remove()
