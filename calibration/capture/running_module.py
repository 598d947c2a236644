"""Which module of a model is running, tracked by hooks on forward."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from vdnnsim.dnn.step import Module

_WRAPPED: Final = "._checkpoint_wrapped_module"
"""What PyTorch's `checkpoint_wrapper` adds to the path of a block."""


class Recomputed(nn.Module):
    """The forward of a block with checkpoints; what runs again in backward belongs to the block."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        # Not as a part of its own, for that it is of the model already.
        vars(self)["block"] = block
        self.forward = block.forward


class ModuleTracker:
    """Tracks forward by hooks; a module with several paths has the first."""

    def __init__(self, model: nn.Module) -> None:
        named = [(path.replace(_WRAPPED, ""), each) for path, each in model.named_modules()]
        self.modules = tuple(Module(path, f"{type(each).__module__}.{type(each).__qualname__}") for path, each in named)
        self._positions = {id(each): position for position, (_, each) in enumerate(named)}
        # Held, so that their identities stay unique.
        self._held = [each for _, each in named]
        self._running = [0]

    @property
    def running(self) -> int:
        """Position of the running module; 0, that of the model, outside of forward."""
        return self._running[-1]

    @property
    def is_running(self) -> bool:
        return len(self._running) > 1

    @property
    def path(self) -> str:
        return self.modules[self.running].path

    def of_parameters(self) -> dict[int, tuple[int, str]]:
        """Return the position of the first owner and the path of each parameter and buffer, by identity."""
        owners: dict[int, tuple[int, str]] = {}
        for position, module in enumerate(self._held):
            path = self.modules[position].path
            for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
                owners.setdefault(id(tensor), (position, f"{path}.{name}" if path else name))
        return owners

    @contextmanager
    def following(self) -> Iterator[None]:
        def enter(module: nn.Module, _: Any) -> None:  # noqa: ANN401 - its arguments
            named = module.block if isinstance(module, Recomputed) else module
            self._running.append(self._positions.get(id(named), self.running))

        def leave(_: nn.Module, __: Any, ___: Any) -> None:  # noqa: ANN401 - its arguments and results
            self._running.pop()

        entering = register_module_forward_pre_hook(enter)
        leaving = register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            entering.remove()
            leaving.remove()
