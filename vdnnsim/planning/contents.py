"""Contents of buffers between two writes: the kernels that write and read them, and their idle intervals."""

from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from vdnnsim.planning.buffer_uses import RESIDENT, IdleInterval
from vdnnsim.planning.problem import Problem

Name = tuple[int, int]
"""A buffer, and the kernel that wrote what it holds; -1 if it is given."""


class Content(NamedTuple):
    """The content of a buffer between two writes, if it is ever idle.

    Attributes:
        makers: the kernels that write it, the last first.
        is_given: whether they rewrite a given content.
    """

    idle: tuple[IdleInterval, ...]
    makers: tuple[int, ...]
    is_given: bool

    @property
    def nbytes(self) -> int:
        """Its size, not rounded to granules."""
        return self.idle[0].nbytes

    @property
    def name(self) -> Name:
        return self.idle[0].buffer, self.idle[0].made

    @property
    def first(self) -> int:
        """The kernel after which it may be offloaded; -1 if it is given."""
        return -1 if self.is_given else self.makers[-1]


def contents_of(problem: Problem) -> list[Content]:
    """Return the contents that are ever idle."""
    written = defaultdict[int, list[tuple[int, bool]]](list)
    for position, kernel in enumerate(problem.kernels):
        reads, writes = problem.buffers.touched(kernel.run)
        for each in dict.fromkeys(writes):
            written[each].append((position, each in reads))
    waits = defaultdict[Name, list[IdleInterval]](list)
    for wait in problem.idle:
        waits[wait.buffer, wait.made].append(wait)
    contents = []
    for (buffer, made), idle in waits.items():
        makers, is_given = list[int](), True
        for position, is_rewritten in reversed([each for each in written[buffer] if each[0] <= made]):
            makers.append(position)
            if not is_rewritten:
                is_given = False
                break
        contents.append(Content(tuple(idle), tuple(makers), is_given))
    return contents


def contents_read(problem: Problem, turn: int) -> tuple[list[list[Name]], set[Name]]:
    """Return what each kernel before the turn reads if it is recomputed, and what is on the GPU in any case meanwhile.

    That is what the turn itself uses, and what is held throughout. What backward gathers anew nobody must hold.
    """
    buffers, current, read = problem.buffers, dict[int, int](), list[list[Name]]()
    for at, kernel in enumerate(problem.kernels[:turn]):
        again = buffers.touched(replace(kernel.run, repeat=1, gathered=True))[0]
        read.append([(each, current.get(each, -1)) for each in again])
        current |= dict.fromkeys(buffers.touched(kernel.run)[1], at)
    held = {each for each, _ in buffers.held(with_statistics=False)}
    held |= {each for each in current if buffers.buffers[each].kind in RESIDENT}
    reads, writes = buffers.touched(problem.kernels[turn].run)
    live = {(each, current.get(each, -1)) for each in (*held, *reads)}
    return read, live | {(each, turn) for each in writes}
