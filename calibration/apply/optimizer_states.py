"""Optimizer states on the host: prefetched for the update of their parameter and offloaded after it.

Captured optimizers work element by element, so that updating parameters one by one computes the same bits.

`optimizer.state` may be read at any time: a prefetched state is placed there once the current stream waits for its
copy, an offloaded one once the host has waited for it.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any, Final

import torch
from torch import nn

from calibration.apply.copy_stream import CopyStream
from calibration.apply.saved_storage import TensorLayout
from calibration.executor.pinned_arena import PinnedArena
from vdnnsim.errors import ExecutionRefused

_AT_ONCE: Final = 2
"""Parameters with states on the device: one is prefetched while another is offloaded."""


@dataclass(frozen=True, slots=True)
class _Copied:
    """A state and the target of its copy."""

    states: dict[str, Any]
    key: str
    copied: torch.Tensor
    mark: Any

    def take_place(self) -> None:
        self.states[self.key] = self.copied


class States:
    """Makes `step` of an optimizer stream its states; its hooks run for each parameter.

    `places` are the bytes of states in pinned memory by parameter and state, as `0.weight exp_avg`; empty for those on
    the GPU.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        places: Mapping[str, range],
        arena: PinnedArena,
        copy_stream: CopyStream,
    ) -> None:
        # Weak, so that the optimizer and its states are freed with its last user, and another may be streamed.
        self._optimizer: torch.optim.Optimizer = weakref.proxy(optimizer)
        self._places, self._arena, self._copy_stream = places, arena, copy_stream
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        # Its own method holds the optimizer; a scheduler's wrapper does not.
        step = optimizer.step
        is_own = getattr(step, "__self__", None) is optimizer
        self._whole: Callable[[], Callable[[], Any] | None] = weakref.WeakMethod(step) if is_own else lambda: step
        # By parameter the running copies to the host.
        self._offloads: deque[list[_Copied]] = deque()
        self._offload_all()
        # A scheduler of the learning rate wraps `step` as a method of the optimizer.
        step_by_step = MethodType(lambda _, closure=None: self._step(closure), self._optimizer)
        optimizer.step = step_by_step  # type: ignore[method-assign]
        optimizer.register_load_state_dict_post_hook(lambda _: self._offload_all())

    def _step(self, closure: Callable[[], Any] | None) -> Any:  # noqa: ANN401 - what the closure returns
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        step, groups = self._whole(), self._optimizer.param_groups
        assert step is not None, "the optimizer lives"
        whole = [group["params"] for group in groups]
        due = [(group, each) for group in groups for each in group["params"] if each.grad is not None]
        prefetched = deque([self._prefetch(each) for _, each in due[:1]])
        try:
            for group in groups:
                group["params"] = []
            for position, (group, parameter) in enumerate(due):
                prefetched.extend(self._prefetch(each) for _, each in due[position + 1 : position + 2])
                for each in prefetched.popleft():
                    self._copy_stream.wait(each.mark)
                    each.take_place()
                group["params"] = [parameter]
                step()
                group["params"] = []
                self._offload(parameter)
                self._finish(_AT_ONCE - 1)
        finally:
            # Their memory is freed after this.
            for each in (each for copies in prefetched for each in copies):
                self._copy_stream.wait(each.mark)
            for group, parameters in zip(groups, whole, strict=True):
                group["params"] = parameters
            self._finish(0)
        return loss

    def _prefetch(self, parameter: nn.Parameter) -> list["_Copied"]:
        states, copies = self._optimizer.state[parameter], []
        for key, _ in self._placed(parameter):
            here = torch.empty_like(states[key], device=parameter.device)
            copies.append(_Copied(states, key, here, self._copy_stream.copy(here, states[key])))
        return copies

    def _offload(self, parameter: nn.Parameter) -> None:
        states, copies = self._optimizer.state[parameter], []
        for key, place in self._placed(parameter):
            here: torch.Tensor = states[key]
            region = self._arena.slice(place.start, len(place))
            layout = TensorLayout(here.dtype, place.start // here.element_size(), here.shape, here.stride())
            host = layout.on(region.untyped_storage())
            copies.append(_Copied(states, key, host, self._copy_stream.copy(host, here)))
        self._offloads.append(copies)

    def _offload_all(self) -> None:
        for group in self._optimizer.param_groups:
            for each in group["params"]:
                self._offload(each)
                self._finish(0)

    def _finish(self, running: int) -> None:
        """Make the host wait for offloads until `running` ones are left; the GPU has work queued meanwhile."""
        while len(self._offloads) > running:
            for each in self._offloads.popleft():
                self._copy_stream.finish(each.mark)
                each.take_place()

    def _placed(self, parameter: nn.Parameter) -> Iterator[tuple[str, range]]:
        owner = self._names.get(id(parameter), "a parameter of another model")
        for key, state in self._optimizer.state[parameter].items():
            name = f"{owner} {key}"
            place = self._places.get(name)
            if not isinstance(state, torch.Tensor) or (not state.dim() if place is None else not place):
                continue
            if place is None or len(place) != state.nbytes:
                raise ExecutionRefused(
                    f"{name}: a state of {state.nbytes} bytes, expected {len(place or ())}, as planned; plan with the "
                    "optimizer of the loop, with its default options"
                )
            yield key, place
