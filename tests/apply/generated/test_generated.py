"""Drawn loops with drawn plans are what they are without, to the bit, and leave nothing behind.

`python -m tests.apply.generated 10000` draws more, and shows the smallest of each that is not.
"""

from collections import Counter

import pytest

from tests.apply.generated import judging
from tests.apply.generated.drawn import LATER, LOOPS, SCRIPTS, STATES, Drawn, drawn_by
from tests.apply.generated.judging import judge
from tests.apply.generated.loops import Act, shown, smaller
from tests.apply.generated.running import Found
from tests.apply.generated.trees import Tree

MODELS = (*range(7), *range(LATER // LOOPS, LATER // LOOPS + 3), STATES // LOOPS + 38)
"""Seven, three that may have later blocks, of which some plans are searched for, and one with parts with a state."""


SEEDS = [SCRIPTS + each for each in (6, 18, 22, 35)]
"""Scripts with a loss of two models, of two calls, of parts, and one that is written over."""


@pytest.mark.parametrize("model", MODELS)
def test_loops_are_the_same_with_a_plan(model: int) -> None:
    """Twenty loops of each of eleven models; most steps follow their plan, and most plans do something."""
    found = Counter[str]()
    for seed in range(LOOPS * model, LOOPS * (model + 1)):
        drawn = Drawn.of(seed)
        outcome = judge(drawn)
        assert not outcome.trouble, f"seed {seed}\n{drawn}\n{outcome.trouble}"
        assert not outcome.unrepeated, f"seed {seed}, without a plan\n{drawn}\n{outcome.unrepeated}"
        found.update(outcome.counts)
    assert found["loops refused"] <= LOOPS / 4
    assert found["steps that left the plan"] < found["steps"] / 2
    assert found["loops that recomputed something"] >= LOOPS / 4


def test_scripts_are_the_same_with_their_plans() -> None:
    """Of four scripts all have a plan, which most steps follow."""
    found = Counter[str]()
    for seed in SEEDS:
        drawn = drawn_by(seed)
        outcome = judge(drawn)
        assert not outcome.trouble, f"seed {seed}\n{drawn}\n{outcome.trouble}"
        found.update(outcome.counts)
    assert found["loops the same to the bit"] == len(SEEDS)
    assert found["steps that left the plan"] < found["steps"] / 2


def test_a_loop_that_pytorch_does_not_repeat_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `rrelu` that ends a checkpoint, whose noise is as the memory was: here the first plain run is off by one."""
    plain, excess = judging._plain, iter((1, 0))  # noqa: SLF001

    def differently(drawn: Drawn) -> Found:
        more = next(excess)
        return [(label, [each + more for each in tensors]) for label, tensors in plain(drawn)]

    monkeypatch.setattr(judging, "_plain", differently)
    assert judge(Drawn.of(0)).counts["loops that PyTorch does not repeat"] == 1


def test_equal_seeds_draw_equal_loops() -> None:
    assert Drawn.of(17) == Drawn.of(17) != Drawn.of(18)


def test_a_loop_is_shown_as_a_program() -> None:
    acts = [
        Act("open"),
        Act("forward", ("a",)),
        Act("close"),
        Act("backward", ("a",), "retained"),
        Act("update", who=1),
    ]
    assert shown(acts).splitlines() == [
        "with plan.apply(model):",
        "    a = loss(model(batch))",
        "    # the context ends",
        "(a).backward()  # retained",
        "update(other)",
    ]


def test_smaller_loops_have_less() -> None:
    """Of two acts: each alone, none, the second plain; of a chain of a block and a join: each left out, or the join."""
    acts = [Act("open"), Act("forward", ("a",), "autocast")]
    found = [tuple(each) for each in smaller(acts)]
    assert {(), (acts[0],), (acts[1],), (acts[0], Act("forward", ("a",)))} == set(found)
    one, other = Tree("linear"), Tree("tanh")
    tree = Tree("chain", (one, Tree("residual", (other,))))
    parts = [each.parts for each in tree.smaller()]
    assert parts == [(tree.parts[1],), (one,), (one, other)]
