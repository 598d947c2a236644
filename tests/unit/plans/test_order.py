"""What streams know of each other; positions are those of the operations that a test issues."""

import pytest

from vdnnsim.plans.operations import Stream
from vdnnsim.plans.order import NOTHING, StreamOrder

COMPUTE, MEMORY, COMMUNICATION = Stream.COMPUTE, Stream.MEMORY, Stream.COMMUNICATION


@pytest.fixture
def order() -> StreamOrder:
    """A kernel at 0 and a copy at 1, neither waited for."""
    order = StreamOrder()
    order.run(COMPUTE, 0)
    order.run(MEMORY, 1)
    return order


def test_a_stream_knows_itself_and_nothing_of_others(order: StreamOrder) -> None:
    assert order.reach(COMPUTE) == {COMPUTE: 0, MEMORY: NOTHING, COMMUNICATION: NOTHING}
    assert order.knows(COMPUTE, COMPUTE, 0)
    assert not order.knows(COMPUTE, MEMORY, 1)
    assert order.knows(COMPUTE, MEMORY, NOTHING)


def test_an_event_tells_what_its_stream_knew_when_it_was_recorded(order: StreamOrder) -> None:
    """The copy at 2 comes behind the event."""
    order.record(7, MEMORY)
    order.run(MEMORY, 2)
    order.wait(7, COMPUTE)

    assert order.is_recorded(7)
    assert order.reach(COMPUTE) == {COMPUTE: 0, MEMORY: 1, COMMUNICATION: NOTHING}


def test_what_is_known_is_passed_on(order: StreamOrder) -> None:
    """The compute stream knows of the copy, so whoever waits for its event does too."""
    order.record(0, MEMORY)
    order.wait(0, COMPUTE)
    order.record(1, COMPUTE)
    order.wait(1, COMMUNICATION)

    assert order.reach(COMMUNICATION) == {COMPUTE: 0, MEMORY: 1, COMMUNICATION: NOTHING}


def test_what_the_host_waited_for_is_known_to_all_that_it_issues_later(order: StreamOrder) -> None:
    order.synchronize((MEMORY,))

    assert not order.knows(COMPUTE, MEMORY, 1), "nothing has been issued since"
    assert order.reach(COMPUTE)[MEMORY] == 1
    order.run(COMMUNICATION, 2)
    assert order.reach(COMMUNICATION) == {COMPUTE: NOTHING, MEMORY: 1, COMMUNICATION: 2}
