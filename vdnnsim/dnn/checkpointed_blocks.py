"""What a step holds where each block is checkpointed, by the step without checkpoints: before it is captured so."""

from dataclasses import dataclass
from typing import Self

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.training_loops import checkpointed_classes


@dataclass(frozen=True, slots=True)
class CheckpointedBlocks:
    """What is held at the least, and what grows with the batch.

    Attributes:
        given_bytes: of parameters, states and all else that is there before the step.
        input_bytes: of the inputs of all blocks, which are saved.
        saved_bytes: the most that forward saves in a block, which is there again as backward of the block begins.
    """

    given_bytes: int
    input_bytes: int
    saved_bytes: int

    @classmethod
    def of(cls, step: CapturedStep) -> Self:
        """Return those of a step; blocks are the outermost modules of the classes that are checkpointed."""
        classes, blocks = checkpointed_classes(step), list[str]()
        for each in sorted(step.modules, key=lambda each: each.path.count(".")):
            if each.kind in classes and not any(each.path.startswith(f"{outer}.") for outer in blocks):
                blocks.append(each.path)
        inputs, saved, made_in = set[int](), {each: set[int]() for each in blocks}, dict[int, str]()
        for operation in step.operations:
            if operation.phase is not Phase.FORWARD:
                continue
            path = f"{step.modules[operation.module].path}."
            block = next((each for each in blocks if path.startswith(f"{each}.")), "")
            for operand in operation.operands:
                storage = step.tensors[operand.memory].storage
                if operand.access.reads and block and made_in.get(storage, block) != block:
                    inputs.add(storage)
                if operand.access.writes:
                    made_in.setdefault(storage, block)
            if block:
                saved[block].update(each for each in operation.saves if each in made_in)
        sizes = [each.nbytes for each in step.storages]
        most = max((sum(sizes[each] for each in those - inputs) for those in saved.values()), default=0)
        given = sum(each.nbytes for each in step.storages if each.given)
        return cls(given, sum(sizes[each] for each in inputs), most)

    @property
    def least_bytes(self) -> int:
        """What the step holds at the least: backward of a block has what forward saved in it, and inputs of all."""
        return self.given_bytes + self.input_bytes + self.saved_bytes

    @property
    def growing_bytes(self) -> int:
        """An estimate of what grows with the batch: gradients in a block are as large as what it saved."""
        return self.input_bytes + 2 * self.saved_bytes

    def fewest_parts(self, size: int, left_bytes: float) -> int:
        """Return the fewest equal parts of so many samples of which one may have room beside what is held."""
        divisors = (each for each in range(2, size) if size % each == 0)
        return next((each for each in divisors if self.growing_bytes <= each * left_bytes), size)
