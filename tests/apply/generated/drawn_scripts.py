"""Unchanged scripts, drawn by a seed, with the plans that `vdnnsim apply` makes for them."""

import gc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from random import Random
from typing import Final
from unittest import mock

import torch
from torch import Tensor, nn

from tests.apply.generated.blocks import BLOCKS
from tests.apply.generated.later_blocks import COMPLEX, STATEFUL
from tests.apply.generated.plans import OPTIMAL, POLICIES, SAMPLES, Lot
from tests.apply.generated.script_losses import LOSSES, TERMS, Trained, loss_of
from tests.apply.generated.trees import Tree, drawn_tree
from tests.apply.scripts import Watched, watched
from tests.apply.training import alike
from vdnnsim.policies import registry

TURNS: Final = (
    "another batch",
    "another call",
    "accumulated",
    "autocast",
    "by torch.autograd.grad",
    "called for its result",
    "clipped",
    "evaluated",
    "fails midway",
    "first loss alone",
    "frozen or melted",
    "not trained",
    "reloaded",
    "retained",
    "scaled",
    "zeroed to zeros",
)
_READS_NUMBERS: Final = "left out at times"
"""A block whose forward reads a random number, which a capture without real tensors refuses."""

Found = list[tuple[str, list[Tensor]]]


class _UserError(Exception):
    """Raised within a forward, which the script catches."""


@dataclass(frozen=True)
class DrawnScript:
    """A script: a model, of which it trains two, a loss and terms, how each of its steps is, and a policy."""

    tree: Tree
    narrow: bool
    loss: tuple[str, ...]
    turns: tuple[str, ...]
    plan: str

    @classmethod
    def of(cls, seed: int) -> "DrawnScript":
        draw = Random(f"script {seed}")  # noqa: S311  # equal draws each time
        later = [*COMPLEX, *(each for each in STATEFUL if each != _READS_NUMBERS)]
        tree = drawn_tree(draw, [*BLOCKS], later)
        terms = [each for each in TERMS if draw.random() < 0.2]
        turns = ["" if draw.random() < 0.6 else draw.choice(TURNS) for _ in range(draw.randint(3, 7))]
        plan = draw.choice((*POLICIES, OPTIMAL, *[f"lot(seed={seed})"] * 3))
        return cls(tree, draw.random() < 0.15, (draw.choice([*LOSSES]), *terms), (*turns, "", ""), plan)

    def __str__(self) -> str:
        narrow = "  # under autocast" * self.narrow
        steps = "\n".join(f"step {at}: {each or 'plain'}" for at, each in enumerate(self.turns))
        return f"model = {self.tree}{narrow}\nloss = {' + '.join(self.loss)}\nplan = {self.plan}\n{steps}"

    def smaller(self) -> "Iterator[DrawnScript]":
        """Yield scripts with a step less, with a plain one, with a term less, or with a smaller model."""
        for at, each in enumerate(self.turns):
            before, behind = self.turns[:at], self.turns[at + 1 :]
            yield replace(self, turns=before + behind)
            if each:
                yield replace(self, turns=(*before, "", *behind))
        yield from (replace(self, loss=self.loss[:at] + self.loss[at + 1 :]) for at in range(1, len(self.loss)))
        yield replace(self, narrow=False)
        yield from (replace(self, tree=tree) for tree in self.tree.smaller())

    def trained(self) -> Trained:
        torch.manual_seed(0)
        return Trained(self.tree.module(), SAMPLES)

    def run(self, trained: Trained) -> Found:
        """Run it, and return what each step left behind."""
        found = Found()
        torch.manual_seed(5)
        for each in self.turns:
            label = each or "plain"
            left: Sequence[Tensor] = ()
            try:
                left = self._step(each, trained)
            except _UserError:
                label += ", raised"
            except (RuntimeError, ValueError) as error:
                # By PyTorch, as of a function whose slope has no slope: nothing of what was summed up is kept.
                label += f", refused: {error}"
                trained.optimizer.zero_grad()
            states = [state["momentum_buffer"] for state in trained.optimizer.state.values()]
            tensors = (*left, *trained.parameters, *trained.buffers, *states, torch.get_rng_state())
            found.append((label, [one.detach().clone() for one in tensors]))
        return found

    def planned(self) -> tuple[Found, Watched, str]:
        """Run it with its plans; return also why there was none."""
        trained = self.trained()
        gc.collect()
        types = {**registry.known_policies(), Lot.name: Lot}
        known = mock.patch.object(registry, "known_policies", return_value=types)
        with known, watched(self.plan) as script, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return self.run(trained), script, script.script.missed
            except SystemExit:
                return [], script, script.said[-1]

    def _step(self, turn: str, trained: Trained) -> Sequence[Tensor]:
        match turn:
            case "called for its result":
                trained.one(trained.batch())
            case "evaluated":
                self._evaluate(trained)
            case "fails midway":
                self._fail(trained)
            case "frozen or melted":
                weight = trained.parameters[0]
                weight.requires_grad_(not weight.requires_grad)
            case "reloaded":
                trained.one.load_state_dict(trained.one.state_dict())
            case _:
                pass
        losses = [self._loss(turn, trained) for _ in range(2 if turn == "accumulated" else 1)]
        if turn == "clipped":
            losses.append(nn.utils.clip_grad_norm_(trained.parameters, 0.1))
        slopes = [each.grad.clone() for each in trained.parameters if each.grad is not None]
        if turn != "not trained":
            trained.optimizer.step()
            trained.optimizer.zero_grad(set_to_none=turn != "zeroed to zeros")
        return [*losses, *slopes]

    def _loss(self, turn: str, trained: Trained) -> Tensor:
        """Run forward and backward of a loss, and return its value."""
        names = self.loss[:1] if turn == "first loss alone" else self.loss
        names = (*names, "another call") if turn == "another call" else names
        trained.samples = SAMPLES - (turn == "another batch")
        narrow = torch.autocast("cpu", torch.bfloat16) if self.narrow != (turn == "autocast") else nullcontext()
        with narrow:
            loss = loss_of(names, trained)
        trained.samples = SAMPLES
        if turn == "by torch.autograd.grad":
            wanted = [each for each in trained.parameters if each.requires_grad]
            for each, slope in zip(wanted, torch.autograd.grad(loss, wanted, allow_unused=True), strict=True):
                each.grad = slope
        else:
            if turn == "retained":
                loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            (loss * 4 if turn == "scaled" else loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach().clone()

    def _evaluate(self, trained: Trained) -> None:
        trained.one.eval()
        with torch.no_grad():
            trained.one(trained.batch())
        trained.one.train()

    def _fail(self, trained: Trained) -> None:
        """Have the last part of a model fail, and drop what was made until then."""

        def fail(*_: object) -> None:
            raise _UserError

        last: nn.Module = trained.one[-1]
        with last.register_forward_hook(fail):
            self._loss("", trained)


def difference(expected: Found, found: Found) -> str:
    """Say in which step of a script something else was left behind; empty if nowhere."""
    for at, ((turn, ones), (also, others)) in enumerate(zip(expected, found, strict=True)):
        if turn.partition(":")[0] != also.partition(":")[0]:
            return f"step {at}: {also}, expected {turn}"
        if len(ones) != len(others):
            return f"step {at}: {turn}: {len(others)} tensors differ from the expected {len(ones)}"
        pairs = enumerate(zip(ones, others, strict=True))
        which = [number for number, (one, other) in pairs if not alike([one], [other])]
        if which:
            one, other = (each[which[0]].flatten()[:4].tolist() for each in (ones, others))
            return f"step {at}: {turn}: tensors {which} of {len(ones)} differ: {other}, expected {one}"
    return ""
