"""What becomes of the copy of a buffer on the host: kept by a prefetch, stale after a write, overwritten."""

import pytest

from tests.plan_writer import PlanWriter
from tests.toy import TOY_LIMITS, touching, toy_chain, toy_workload
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Paged, Stream, describe
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan

F = Phase.FORWARD


class Script:
    """Writes copies of one buffer of 10 B, both streams waiting for each other after each operation."""

    def __init__(self, *, given: bool = False) -> None:
        self._writer = PlanWriter(toy_workload(toy_chain(1)))
        self._buffer = self._writer.buffer("X", BufferKind.FEATURE_MAP, 10, Stage.FEATURES, given=given)

    def run(self, *steps: str) -> TrainingPlan:
        for step in steps:
            self._step(step)
            self._writer.synchronize()
        return self._writer.finish("script", "p")

    def _step(self, step: str) -> None:
        writer, buffer = self._writer, self._buffer
        match step:
            case "allocate":
                writer.allocate(buffer, 0, F)
            case "release":
                writer.release(buffer)
            case "read":
                writer.compute(0, F, "only", touching(reads=(buffer,)))
            case "write":
                writer.compute(0, F, "only", touching(writes=(buffer,)))
            case "offload":
                writer.offload(buffer, 0)
            case "fetch":
                writer.prefetch(buffer, 0, on_demand=True)
            case "fetch and keep":
                writer.prefetch(buffer, 0, on_demand=True, keeps_copy=True)
            case _:
                raise AssertionError(step)


AWAY = ("allocate", "write", "offload", "release", "allocate")


def refusal(*steps: str, given: bool = False) -> str:
    with pytest.raises(PlanError) as caught:
        check_plan(Script(given=given).run(*steps))
    return str(caught.value).rpartition(": ")[2]


def test_a_copy_that_is_kept_serves_again() -> None:
    """The buffer is released without a second offload, for nothing has changed it."""
    check_plan(
        Script().run(*AWAY, "fetch and keep", "read", "release", "allocate", "fetch and keep", "read", "release")
    )


def test_a_copy_that_is_not_kept_serves_once() -> None:
    assert refusal(*AWAY, "fetch", "read", "release", "allocate", "fetch") == "X is prefetched but not on the host"


def test_a_kernel_that_writes_makes_the_copy_stale() -> None:
    """So it must be offloaded again, and may be: before the buffer was away as well as after it came back."""
    for before in (("allocate", "write", "offload"), (*AWAY, "fetch and keep")):
        stale = (*before, "write", "release", "allocate", "fetch")
        assert refusal(*stale) == "X is prefetched but not on the host"
        check_plan(Script().run(*before, "write", "offload", "release", "allocate", "fetch", "read", "release"))


def test_a_copy_that_is_good_is_not_made_again() -> None:
    assert refusal(*AWAY, "fetch and keep", "offload") == "X is offloaded twice"


def test_what_is_given_is_given_once() -> None:
    """A buffer that is released without a copy on the host has lost what was in it."""
    check_plan(Script(given=True).run("allocate", "read", "release"))
    lost = "X is read before anything was written to it"
    assert refusal("allocate", "release", "allocate", "read", given=True) == lost
    check_plan(Script(given=True).run("allocate", "offload", "release", "allocate", "fetch", "read", "release"))


@pytest.mark.parametrize(
    ("steps", "host_bytes"),
    [
        ((*AWAY, "fetch", "write", "offload", "release"), 10),
        ((*AWAY, "fetch and keep", "write", "offload", "release", "allocate", "fetch", "release"), 10),
        ((*AWAY, "fetch and keep", "release"), 10),
    ],
)
def test_a_new_copy_lies_where_the_old_one_was(steps: tuple[str, ...], host_bytes: int) -> None:
    """However often one buffer of 10 B leaves, the host holds 10 B."""
    plan = Script().run(*steps)
    check_plan(plan)
    placement = place_plan(plan, TOY_LIMITS)
    assert isinstance(placement, Placement)
    assert placement.host_bytes == host_bytes


def test_paged_copies_are_called_so() -> None:
    writer = PlanWriter(toy_workload(toy_chain(1)))
    buffer = writer.buffer("X", BufferKind.FEATURE_MAP, 10, Stage.FEATURES)
    paged = Paged(page_bytes=4, page_latency_s=1.0)
    writer.offload(buffer, 1, Phase.BACKWARD_DATA, mechanism=paged)
    writer.prefetch(buffer, 0, on_demand=True, mechanism=paged)
    writer.wait(writer.record(Stream.MEMORY), Stream.COMPUTE)
    plan = writer.finish("script", "p")

    texts = [describe(operation, plan.buffer_names, plan.layers) for operation in plan.operations]

    assert texts[:2] == ["page-out of X for fc", "page-in of X for conv1"]
