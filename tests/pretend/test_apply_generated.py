"""Drawn loops with drawn plans on a pretended GPU, whose kernels the host computes in the order of their streams.

Device memory is out of the host's reach, and copies move their bytes when they end: what is read too early, or from
the wrong place, is seen in losses, gradients and weights. What disturbs a copy is seen besides in what streams did,
whatever came of it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random

import pytest
import torch

from calibration.apply.copy_stream import CudaCopyStream
from calibration.apply.loop import Loop
from tests.apply.generated import judging
from tests.apply.generated.drawn import LOOPS, Drawn
from tests.apply.generated.judging import Watching, judge
from tests.apply.generated.node_order import number_nodes_apart
from tests.apply.training import alike
from tests.host_arithmetic.operators import arithmetic_of_the_host
from tests.pretend.stream_races import find_hazards
from tests.pretend.watch import watched

pytestmark = [pytest.mark.pretend, pytest.mark.filterwarnings("ignore:the plan of")]

MODELS = [each for each in range(19) if each not in {6, 8, 13, 17}]
"""Fifteen; the others the host does not compute: a normalization of cuDNN, a view that is written, one for minutes."""


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Watching:
    """Runs a loop, and says where a copy was out of order with what touches the same memory."""

    def hazards(work: Callable[[], None], loops: Sequence[Loop]) -> str:
        _, happened = watched(work, monkeypatch, collects=False)
        streams = [each.copy_stream for each in loops]
        copying = {each.stream.cuda_stream for each in streams if isinstance(each, CudaCopyStream)}
        assert copying
        found = find_hazards(happened, copying)
        shown = [f"{each.what}: {happened[each.first]}, {happened[each.second]}" for each in found[:3]]
        return "\n".join([f"{len(found)} races", *shown]) if found else ""

    return hazards


@pytest.mark.parametrize("model", MODELS)
def test_loops_are_the_same_with_a_plan(model: int, watching: Watching) -> None:
    """Twenty loops of each of fifteen models: equal to the bit or refused, no race, and device memory is level.

    Each operator lasts as long as it is drawn: what no stream waits for comes early or late, and is seen in values.
    """
    found = Counter[str]()
    lasts = partial(Random(f"durations {model}").choice, (0.0, 0.0, 1e-5, 1e-3))  # noqa: S311
    with arithmetic_of_the_host(lasts):
        for seed in range(LOOPS * model, LOOPS * (model + 1)):
            drawn = Drawn.of(seed, "cuda")
            outcome = judge(drawn, watching)
            assert not outcome.trouble, f"seed {seed}\n{drawn}\n{outcome.trouble}"
            assert not outcome.unrepeated, f"seed {seed}, without a plan\n{drawn}\n{outcome.unrepeated}"
            found.update(outcome.counts)
    assert found["loops the same to the bit"] > 0


def test_a_loop_whose_backward_fails_waits_for_side_streams() -> None:
    """Where backward fails, PyTorch leaves gradients of a side stream to come: such a loop, without a plan, waits.

    The update behind it otherwise reads them early: here the side stream takes 10 ms for each operator.
    """
    drawn, main = Drawn.of(7_000_318, "cuda"), torch.cuda.default_stream()
    assert "fails midway" in str(drawn)
    with arithmetic_of_the_host(lambda: 1e-2 * (torch.cuda.current_stream() != main)):
        late = judging._plain(drawn)  # noqa: SLF001
    with arithmetic_of_the_host():
        for (label, tensors), (_, others) in zip(judging._plain(drawn), late, strict=True):  # noqa: SLF001
            assert alike(tensors, others), label


def test_threads_of_a_loop_number_their_nodes_apart() -> None:
    """Nodes of the loop come before those of backward, and these before those of a new thread, in each of its runs."""
    number_nodes_apart("cuda")
    number, numbers = torch._C._autograd._get_sequence_nr, list[int]()  # noqa: SLF001  # there is no public one
    weight = torch.zeros((), device="cuda", requires_grad=True)
    weight.register_hook(lambda _: numbers.append(number()))  # type: ignore[no-untyped-call]
    weight.backward()  # type: ignore[no-untyped-call]
    with ThreadPoolExecutor(1) as thread:
        numbers.append(thread.submit(number).result())
    assert number() - 40_000 > numbers[0] >= numbers[1] + 2_000


def test_a_wait_that_is_left_out_is_a_race_in_a_drawn_loop(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model saves no indices: read too early they are garbage, with which arithmetic on the host crashes."""
    monkeypatch.setattr(CudaCopyStream, "wait", lambda *_: None)
    with arithmetic_of_the_host():
        assert "races" in judge(Drawn.of(LOOPS, "cuda"), watching).trouble
