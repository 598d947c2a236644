"""A loop and its plan, or a script, drawn by a seed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.apply.generated.blocks import BLOCKS, NOT_ON_HOST
from tests.apply.generated.drawn_scripts import DrawnScript
from tests.apply.generated.later_blocks import COMPLEX, STATEFUL, STREAMS
from tests.apply.generated.loops import Act, Drawing, shown, smaller
from tests.apply.generated.plans import MANY_SAMPLES, OPTIMAL, POLICIES, SAMPLES, WITH_STATES
from tests.apply.generated.trees import Tree, drawn_tree

LOOPS: Final = 20
"""Of each model, which is captured once."""
LATER: Final = 1_000_000
"""The first seed of loops that may have later blocks and later policies; those of lower seeds stay as they were."""
STATES: Final = 2_000_000
"""The first seed of loops whose models may have parts with a state."""
SCRIPTS: Final = 4_000_000
"""The first seed of scripts, without a GPU; those of lower seeds are loops."""
LIMITED: Final = 8_000_000
"""The first seed of loops on a GPU that are of many samples, within a limit of its memory."""
_LATER_POLICIES: Final = (OPTIMAL, WITH_STATES)


@dataclass(frozen=True)
class Drawn:
    """A loop and its plan: of a policy, in a share of the memory that the loop takes without one, or drawn by a seed.

    With `apart` the second model has a plan of its own; `narrow` is forward under autocast.
    """

    tree: Tree
    narrow: bool
    plan: str
    apart: bool
    acts: tuple[Act, ...]
    device: str = "cpu"
    share: float = 1
    samples: int = SAMPLES

    @classmethod
    def of(cls, seed: int, device: str = "cpu") -> "Drawn":
        number, at = divmod(seed, LOOPS)
        of_model, draw = Random(f"model {number}"), Random(f"loop {seed}")  # noqa: S311  # equal draws each time
        names, later, policies, samples = [*BLOCKS], list[str](), [*POLICIES], SAMPLES
        if device != "cpu":
            names, later = [each for each in BLOCKS if each not in NOT_ON_HOST], [*STREAMS]
            samples, policies = (MANY_SAMPLES, [OPTIMAL] * (LOOPS // 2)) if seed >= LIMITED else (SAMPLES, policies)
        elif seed >= LATER:
            later = [*COMPLEX, *STATEFUL] if seed >= STATES else [*COMPLEX]
            policies = [*POLICIES, *_LATER_POLICIES]
        tree = drawn_tree(of_model, names, later)
        plan = policies[at] if at < len(policies) else f"by lot {seed}"
        acts = Drawing(draw).acts()
        if device != "cpu":
            # The host's arithmetic is refused under inference mode, which takes no operator apart.
            acts = [replace(each, how="no gradients") if each.how == "inference" else each for each in acts]
        narrow, apart = of_model.random() < 0.15, draw.random() < 0.5
        # The states of one optimizer are in one loop's pinned memory.
        apart = apart or plan == WITH_STATES
        share = draw.uniform(0.75, 1) if plan in _LATER_POLICIES else 1
        return cls(tree, narrow, plan, apart, tuple(acts), device, share, samples)

    def __str__(self) -> str:
        narrow = "  # under autocast" * self.narrow
        apart = "of its own" if self.apart else "that of the first"
        within = f" in {self.share:.0%} of the memory" * (self.share < 1)
        within += f", of {self.samples} samples" * (self.samples > SAMPLES)
        plans = f"plan = {self.plan}{within}; the other model's is {apart}"
        return f"model = {self.tree}{narrow}\n{plans}\n{shown(self.acts)}"

    def smaller(self) -> "Iterator[Drawn]":
        """Yield loops with fewer acts first, for another model has to be captured."""
        yield from (replace(self, acts=tuple(acts)) for acts in smaller(self.acts) if acts)
        yield replace(self, apart=False)
        yield replace(self, narrow=False)
        yield from (replace(self, tree=tree) for tree in self.tree.smaller())


def drawn_by(seed: int) -> Drawn | DrawnScript:
    return DrawnScript.of(seed) if seed >= SCRIPTS else Drawn.of(seed)
