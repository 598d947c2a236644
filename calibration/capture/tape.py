"""What autograd saves in forward and takes again in backward, in order, and when the program itself lets go of it.

By it a live run is recognized while it runs, and by it one knows where in the captured step that run is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._ops import OpOverload
from torch.utils._pytree import TreeSpec, tree_flatten

from calibration.capture.storages import element_type_of
from vdnnsim.dnn.layers import Phase

if TYPE_CHECKING:
    from calibration.capture.recorder import Record


@dataclass(frozen=True, slots=True)
class Save:
    """A tensor that autograd saves.

    Attributes:
        issued: how many operations of the step were issued before it.
        storage: number of its storage in the captured step.
        shape: in elements.
    """

    issued: int
    storage: int
    shape: tuple[int, ...]
    element_type: str


@dataclass(frozen=True, slots=True)
class Take:
    """A tensor that backward takes.

    Attributes:
        issued: how many operations of the step were issued before it.
        save: its position among the saves.
    """

    issued: int
    save: int


@dataclass(frozen=True, slots=True)
class Lying:
    """How a tensor lies in memory of its own."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """An operation as it was dispatched, without the content of its tensors.

    Attributes:
        leaves: its arguments, tensors as how they lie; `arguments` says in what they are.
    """

    func: OpOverload
    leaves: tuple[object, ...]
    arguments: TreeSpec

    @classmethod
    def of(cls, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "Call":
        """Return that of arguments."""
        leaves, arguments = tree_flatten((args, dict(kwargs)))
        return cls(func, tuple(map(_without_content, leaves)), arguments)


def _without_content(leaf: object) -> object:
    if isinstance(leaf, torch.Tensor):
        return Lying(leaf.dtype, tuple(leaf.shape), leaf.stride())
    return leaf


@dataclass(frozen=True)
class Tape:
    """All saves and takes of an iteration, in order.

    Attributes:
        calls: how each operation was dispatched.
        let_go: by storage that is saved, the last operation that runs while somebody beside autograd still holds it.
        of_model: how many operations had been issued when forward of the model returned; what follows is of its loss.
    """

    saves: tuple[Save, ...]
    takes: tuple[Take, ...]
    let_go: Mapping[int, int]
    calls: tuple[Call, ...]
    of_model: int


@dataclass
class TapeRecorder:
    """Writes down saves and takes while an iteration is recorded.

    Attributes:
        gives_away: whether autograd is handed a copy of what it saves, so that a storage is freed when the program lets
            go of it; else what it saved, as in any run.
    """

    gives_away: bool
    saves: list[Save] = field(default_factory=list)
    takes: list[Take] = field(default_factory=list)

    def save(self, tensor: torch.Tensor, storage: int, issued: int) -> tuple[int, torch.Tensor]:
        """Note a tensor that is saved, and return what autograd keeps."""
        self.saves.append(Save(issued, storage, tuple(tensor.shape), element_type_of(tensor)))
        # With its node, a result that is saved would hold itself, and live on where no backward comes by.
        kept = tensor.detach()
        return len(self.saves) - 1, kept.clone() if self.gives_away else kept

    def take(self, save: int, issued: int) -> None:
        """Note a tensor that is taken again."""
        self.takes.append(Take(issued, save))

    def finish(
        self, numbers: Mapping[int, int], let_go: Mapping[int, int], records: Sequence["Record"], of_model: int
    ) -> Tape:
        """Return all of it, by the new numbers of storages."""
        saves = (Save(each.issued, numbers[each.storage], each.shape, each.element_type) for each in self.saves)
        return Tape(tuple(saves), tuple(self.takes), let_go, tuple(each.call for each in records), of_model)


def freed_by_program(
    first: Sequence["Record"], freed_after: Sequence[int | None], second: Sequence["Record"]
) -> dict[int, int]:
    """Return when the program let go of the storages that operations of forward touch.

    In the first iteration autograd held none of what it saved; the answer is by the numbers of the second.
    """
    found: dict[int, int] = {}
    at = 0
    for position, other in enumerate(second):
        if other.phase is not Phase.FORWARD:
            break
        # What the program makes only once, as labels, is in the first alone.
        same = (each for each in range(at, min(at + _MADE_ONCE, len(first))) if _alike(first[each], other))
        twin = next(same, None)
        if twin is None:
            break
        for (there, *_), (here, *_) in zip(first[twin].operands, other.operands, strict=True):
            if (end := freed_after[there]) is not None:
                found.setdefault(here, end + position - twin)
        at = twin + 1
    return found


def _alike(one: "Record", other: "Record") -> bool:
    return one.name == other.name and one.phase is other.phase and len(one.operands) == len(other.operands)


_MADE_ONCE: Final = 8
"""Operations that an iteration may have and no later one."""
