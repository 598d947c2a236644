"""Saved and live bytes of a real iteration on the CPU, measured without the recorder: storages after each operation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from calibration.capture.preparation import prepare
from calibration.capture.program import Program
from calibration.capture.schemas import OperatorMode
from vdnnsim.dnn.layers import Phase


class _AliveStorages(OperatorMode):
    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.given = {each.untyped_storage()._cdata for each in given}  # noqa: SLF001 - its identity
        self.known = [ref(each.untyped_storage()) for each in given]
        self.peak_bytes = 0

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        result = func(*args, **kwargs)
        self.known += [ref(each.untyped_storage()) for each in _tensors((args, kwargs, result))]
        alive = {each._cdata: each for known in self.known if (each := known()) is not None}  # noqa: SLF001
        self.known = [ref(each) for each in alive.values()]
        self.peak_bytes = max(self.peak_bytes, sum(each.nbytes() for each in alive.values()))
        return result


def peak_of(given: object, step: Callable[[], object]) -> int:
    """Return the peak of live bytes of a step, beside which the tensors of a tree are there."""
    alive = _AliveStorages(_tensors(given))
    with alive:
        step()
    return alive.peak_bytes


def run_really(program: Program) -> tuple[int, int]:
    """Return the saved bytes and the peak of live bytes of the second iteration."""
    iteration = prepare(program, program.make_model(), "cpu", foreach=False)
    iteration.run(lambda _: None)
    state = [each for optimizer in iteration.optimizers for each in optimizer.state.values()]
    scaler = vars(iteration.scaler) if iteration.scaler else {}
    given = _tensors(
        (scaler, list(iteration.model.parameters()), list(iteration.model.buffers()), iteration.batches, *state)
    )
    alive = _AliveStorages(given)
    saved: list[dict[int, int]] = []
    phase = [Phase.FORWARD]

    def enter(entered: Phase) -> None:
        phase[0] = entered
        if entered is Phase.FORWARD:
            saved.append({})

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if phase[0] is Phase.FORWARD and storage._cdata not in alive.given:  # noqa: SLF001
            saved[-1][storage._cdata] = storage.nbytes()  # noqa: SLF001
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed), alive:
        held = iteration.run(enter)
    del held
    return max(sum(each.values()) for each in saved), alive.peak_bytes


def _tensors(tree: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)]
