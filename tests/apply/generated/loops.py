"""Loops as lists of acts, which are drawn turn by turn, shown as a program, run and shrunk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final


@dataclass(frozen=True)
class Act:
    """One line of a loop, of one of two models, each with an optimizer of its own.

    `how` it is otherwise than in a plain loop. Its `names` are of the losses that it makes or takes: on a loss that is
    not there it does nothing. In a thread of its own the other thread waits.
    """

    verb: str
    names: tuple[str, ...] = ()
    how: str = ""
    who: int = 0
    in_thread: bool = False

    def __str__(self) -> str:
        model = ("model", "other")[self.who]
        match self.verb:
            case "open":
                text = f"with plan.apply({model}):"
            case "close":
                text = "# the context ends"
            case "raise":
                text = "raise ValueError  # caught behind the context"
            case "forward":
                text = f"{self.names[0]} = loss({model}(batch))"
            case "backward":
                text = f"({' + '.join(self.names)}).backward()"
            case "drop":
                text = f"del {self.names[0]}"
            case _:
                text = f"{self.verb}({model})"
        notes = [each for each in (self.how, "in a thread" * self.in_thread) if each]
        return f"{text}  # {', '.join(notes)}" if notes else text


def shown(acts: Sequence[Act]) -> str:
    lines, depth = [], 0
    for act in acts:
        if act.verb in ("close", "raise"):
            lines.append("    " * depth + str(act))
            depth = max(0, depth - 1)
        else:
            lines.append("    " * depth + str(act))
            depth += act.verb == "open"
    return "\n".join(lines)


FORWARD: Final = (
    "another batch",
    "no gradients",
    "inference",
    "evaluation",
    "outputs kept",
    "an output written over",
    "fails at the end",
    "autocast",
    "checkpointed",
    "reentrantly checkpointed",
    "saved on the host",
    "input wants a gradient",
)
BACKWARD: Final = ("retained", "by torch.autograd.grad", "of the last weight, retained", "fails midway", "penalty")
BETWEEN: Final = (
    "zero",
    "zero to zeros",
    "clip",
    "update",
    "evaluate",
    "reload",
    "reload by assignment",
    "change weights",
    "replace weights",
    "collect",
    "freeze or melt",
    "draw a number",
    "rest",
)


WRITE: Final = ("forward", "update", "reload", "reload by assignment", "change weights", "evaluate")
"""Acts that may write over what forward has read: weights, or buffers."""


class Drawing:
    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._count = 0
        self._pending: list[str] = []

    def acts(self) -> list[Act]:
        """Draw some turns, then two plain ones: a loop must be as good as new."""
        acts: list[Act] = []
        for _ in range(self._draw.randint(2, 5)):
            turn = list(self._turn())
            while self._draw.random() < 0.35:
                turn.insert(self._draw.randint(0, len(turn)), Act(self._draw.choice(BETWEEN), who=self._who()))
            if self._draw.random() < 0.1:
                turn = [replace(each, in_thread=True) for each in turn]
            elif self._draw.random() < 0.1:
                turn = [
                    replace(each, in_thread=each.verb == self._draw.choice(("forward", "backward"))) for each in turn
                ]
            acts += turn
        rest = [Act("backward", (each,)) for each in self._pending if self._draw.random() < 0.5]
        self._pending = []
        return [*acts, *rest, *self._plain(), *self._plain()]

    def _who(self) -> int:
        return int(self._draw.random() < 0.2)

    def _name(self) -> str:
        self._count += 1
        return "abcdefghijklmnopqrstuvwxyz"[self._count % 26] + str(self._count // 26 or "")

    def _forward(self, who: int, odd: float = 0.3) -> Act:
        how = self._draw.choice(FORWARD) if self._draw.random() < odd else ""
        return Act("forward", (self._name(),), how, who)

    def _backward(self, *names: str, odd: float = 0.2) -> Act:
        return Act("backward", names, self._draw.choice(BACKWARD) if self._draw.random() < odd else "")

    def _plain(self) -> Iterator[Act]:
        name = self._name()
        yield Act("open")
        yield Act("forward", (name,))
        yield Act("backward", (name,))
        yield Act("close")
        yield from (Act("update"), Act("zero"))

    def _turn(self) -> Iterator[Act]:
        kinds = (
            *(self._step, self._step, self._step_behind, self._collected, self._collected, self._accumulated),
            *(self._dropped, self._raised, self._nested, self._two, self._kept, self._pipelined, self._both),
        )
        yield from self._draw.choice(kinds)()
        while self._pending and self._draw.random() < 0.2:
            name = self._pending.pop(self._draw.randrange(len(self._pending)))
            yield self._draw.choice((self._backward(name), Act("drop", (name,))))

    def _updated(self, who: int) -> Iterator[Act]:
        if self._draw.random() < 0.8:
            yield Act("update", who=who)
            yield Act(self._draw.choice(("zero", "zero", "zero to zeros")), who=who)

    def _step(self) -> Iterator[Act]:
        who = self._who()
        forward = self._forward(who)
        backward = self._backward(*forward.names)
        yield from (Act("open", who=who), forward, backward)
        if "retained" in backward.how:
            yield Act("backward", forward.names)
        yield Act("close", who=who)
        yield from self._updated(who)

    def _step_behind(self) -> Iterator[Act]:
        who = self._who()
        forward = self._forward(who)
        yield from (Act("open", who=who), forward, Act("close", who=who), self._backward(*forward.names))
        yield from self._updated(who)

    def _collected(self) -> Iterator[Act]:
        """Several contexts, whose losses live on; backward of each, or of their sum."""
        who, names = self._who(), list[str]()
        for _ in range(self._draw.randint(2, 4)):
            forward = self._forward(who, 0.1)
            names += forward.names
            yield from (Act("open", who=who), forward, Act("close", who=who))
        if self._draw.random() < 0.4:
            yield self._backward(*names)
        else:
            self._draw.shuffle(names)
            for each in names[: self._draw.randint(1, len(names))]:
                yield self._backward(each)
        yield from self._updated(who)

    def _accumulated(self) -> Iterator[Act]:
        for _ in range(self._draw.randint(2, 3)):
            forward = self._forward(0, 0.1)
            yield from (Act("open"), forward, self._backward(*forward.names, odd=0.1), Act("close"))
        yield Act("clip")
        yield from self._updated(0)

    def _dropped(self) -> Iterator[Act]:
        for _ in range(self._draw.randint(1, 2)):
            forward = self._forward(0)
            drop = Act("drop", forward.names)
            yield from (Act("open"), forward)
            yield from self._draw.choice(((drop, Act("close")), (Act("close"), drop)))

    def _raised(self) -> Iterator[Act]:
        forward = self._forward(0)
        yield from (Act("open"), forward, Act("raise"))
        if self._draw.random() < 0.7:
            yield Act("drop", forward.names)
        else:
            self._pending += forward.names

    def _nested(self) -> Iterator[Act]:
        one, two = self._forward(0, 0.1), self._forward(self._who(), 0.1)
        yield from (Act("open"), one, Act("open", who=two.who), two)
        yield from (self._backward(*two.names), Act("close", who=two.who))
        yield from self._draw.choice(
            ((self._backward(*one.names), Act("close")), (Act("close"), self._backward(*one.names)))
        )
        yield from self._updated(0)

    def _two(self) -> Iterator[Act]:
        one, two = self._forward(0, 0.1), self._forward(self._who(), 0.1)
        yield from (Act("open"), one, two, self._backward(*one.names), self._backward(*two.names), Act("close"))
        yield from self._updated(0)

    def _kept(self) -> Iterator[Act]:
        forward = self._forward(0)
        self._pending += forward.names
        yield from (Act("open"), forward, Act("close"))

    def _pipelined(self) -> Iterator[Act]:
        """Backward of a step within the context of the next."""
        one, two = self._forward(0, 0.1), self._forward(0, 0.1)
        yield from (Act("open"), one, Act("close"), Act("open"))
        yield from self._draw.choice(((self._backward(*one.names), two), (two, self._backward(*one.names))))
        yield from (Act("close"), self._backward(*two.names))
        yield from self._updated(0)

    def _both(self) -> Iterator[Act]:
        """Two models in turn."""
        one, two = self._forward(0, 0.1), self._forward(1, 0.1)
        yield from (Act("open"), one, Act("close"), Act("open", who=1), two, Act("close", who=1))
        yield from (self._backward(*two.names), self._backward(*one.names))
        yield from (*self._updated(0), *self._updated(1))


def smaller(acts: Sequence[Act]) -> Iterator[list[Act]]:
    """Yield loops without some acts, then with one that is plain."""
    for length in (8, 4, 3, 2, 1):
        for at in range(0, len(acts), max(1, length // 2)):
            yield [*acts[:at], *acts[at + length :]]
    for at, act in enumerate(acts):
        if act.how or act.who or act.in_thread:
            yield [*acts[:at], replace(act, how="", who=0, in_thread=False), *acts[at + 1 :]]
