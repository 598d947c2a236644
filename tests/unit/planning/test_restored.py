"""What orders with recomputations restore, on networks of a few kernels of 1 s."""

import pytest

from tests.toy import toy_chain, toy_costs, toy_graph, toy_workload
from tests.unit.planning.chain_of_ten_kernels import chain_problem
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.planning.effort import UNLIMITED
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.planning.recomputation_bound import recomputation_bound
from vdnnsim.planning.restored import Beside, Restored, restored, restored_too_early
from vdnnsim.plans.schedule import iteration


def restored_in(graph: LayerGraph, *names: str) -> tuple[Problem, Problem, Restored, dict[str, int]]:
    """The problem around its fullest kernel, the one that holds more, what is restored, and buffers by name."""
    workload = toy_workload(graph)
    costs, runs = toy_costs(workload, {}).table(workload), iteration(workload)
    numbers = {each.name: number for number, each in enumerate(workload.step.storages)}
    dropped = [numbers[each] for each in names]
    whole, order = (
        problem_of(each, workload, costs, 1000) for each in (runs, Recomputation(runs, workload, costs).order(dropped))
    )
    around = whole.around(whole.fullest)
    return around, *restored(around, whole.fullest, order, dropped), numbers


def test_inputs_of_recomputations_are_there_before_their_own_use() -> None:
    """Kernels 0 to 5 are forward of conv1 to conv4, fc and the loss. dW of conv4, kernel 10, reads the map of conv3.

    Before it conv2 and conv3 are recomputed, of the map of conv1, which dW of conv2 reads, kernel 14. While conv2 runs
    again the gradients of conv4 and conv3 are there, its map and that of conv1: without the last two 20 B, where
    kernel 10 has 30 B, the map of conv3 among them. So no kernel holds more.
    """
    begin, problem, found, of = restored_in(toy_chain(4), "map conv2", "map conv3")

    assert problem == begin
    assert found.until == {of["map conv2"]: 10, of["map conv3"]: 10}
    assert found.beside == (Beside(kernel=1, first=10, stop=14, nbytes=10, is_kept=True),)


def test_temporaries_of_several_recomputations_stay() -> None:
    """Both sums read the map of left, which backward does not. Forward has nine kernels, with conv1 as 0, left as 1.

    dW of b, kernel 14, reads the second sum: left and the sum are recomputed, of the map of conv1, which dW of left
    reads, kernel 20. dW of a, kernel 17, reads the first, which is made of the map of left that is there.
    """
    sums = "sum1 add left conv1; a conv; sum2 add left conv1; b conv; out add a b"
    graph = toy_graph(f"conv1 conv; left conv; {sums}")

    _, _, found, of = restored_in(graph, "map sum1", "map sum2")

    assert found.until == {of["map sum1"]: 17, of["map sum2"]: 14}
    assert set(found.beside) == {
        Beside(kernel=1, first=14, stop=20, nbytes=10, is_kept=True),
        Beside(kernel=1, first=14, stop=17, nbytes=10, is_kept=False),
    }
    # With the first sum kept the temporary is freed before kernel 14.
    assert restored_in(graph, "map sum2")[2].beside == (Beside(kernel=1, first=14, stop=20, nbytes=10, is_kept=True),)


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_relaxation_holds_what_is_restored_only_if_it_recomputes(*, is_kept: bool) -> None:
    """At 296 B recomputations take 2 s (test_recomputation_bound.py), of conv1 among them.

    If 100 B lie beside kernel 7 whenever conv1 is recomputed, its map must be copied instead, in more than 10,000 s.
    """
    links = Links(1e-4, 1e-4)

    def seconds(kernel: int) -> float:
        beside = Beside(kernel, 7, 9, 100, is_kept)
        return recomputation_bound(chain_problem(296), links, 10**9, UNLIMITED, Restored(beside=(beside,))).seconds

    assert seconds(5) == pytest.approx(12.0, rel=1e-4)
    assert seconds(0) > 10_000


def test_what_waits_while_a_kernel_lacks_memory_is_restored_too_early() -> None:
    """The loss is kernel 5. Before dW of conv4 conv2 and conv3 are recomputed, in 10 and 11; then it is kernel 12.

    Meanwhile the map of conv2 waits for dW of conv3, kernel 14; that of conv3 does not, for conv4 reads it. If conv3
    alone is recomputed, in 10, the map of conv2 was prefetched for that, and dW of conv4 is kernel 11. Of two maps that
    wait the dearer is kept first, and a kernel that lacks less finds the room. With that of conv1 the input waits, of
    which it was made: 20 B.
    """
    workload = toy_workload(toy_chain(4))
    costs, runs = toy_costs(workload, {}).table(workload), iteration(workload)
    of = {each.name: number for number, each in enumerate(workload.step.storages)}

    def early(lacking: dict[int, int], dearest: str, *names: str) -> set[str]:
        dropped = frozenset(of[f"map {each}"] for each in names)
        order = problem_of(Recomputation(runs, workload, costs).order(dropped), workload, costs, 530)
        found = restored_too_early(order, 5, lacking, dropped, lambda each: float(each == of[f"map {dearest}"]))
        return {name for name, number in of.items() if number in found}

    assert early({12: 5}, "conv2", "conv2", "conv3") == {"map conv2"}
    assert early({11: 5}, "conv2", "conv3") == {"map conv3"}
    assert early({4: 5}, "conv2", "conv2", "conv3") == set()
    assert early({13: 3, 14: 5}, "conv1", "conv1", "conv2", "conv3") == {"map conv1"}
    assert early({13: 20}, "conv1", "conv1", "conv2", "conv3") == {"map conv1"}
    assert early({13: 25}, "conv1", "conv1", "conv2", "conv3") == {"map conv1", "map conv2"}
