"""The contract of plans: scripts that keep it, and scripts that break it with a fragment of the refusal."""

import pytest

from tests.unit.plans.hand_written import ROUND_TRIP, refusal, script, with_operations
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Allocate, Compute, Offload, Operation, Prefetch, RecordEvent, Release, WaitEvent

BOTH_OFFLOADED = "take x; write x; compute>memory; offload x[0:4]; offload x[4:10]"
BOTH_FREED = f"{BOTH_OFFLOADED}; memory>compute; free x[0:4]; free x[4:10]"
AWAY = "take x; sync; write x; sync; offload x; sync; free x; sync; take x; sync"
AGAIN = "sync; read x; sync; free x; sync; take x; sync"
EXCHANGED = "take x; write x; compute>communication; exchange x; communication>compute; read x; free x"

VALID = {
    "nothing": "",
    "round trip": ROUND_TRIP,
    "an offload may stay on the host": "given x; offload x; sync; free x",
    "a kernel may read what is being offloaded": "given x; offload x; read x; sync; free x",
    "one event serves all behind the wait": (
        "take x; take y; write x y; compute>memory; offload x; offload y; memory>compute; free x; free y"
    ),
    "a synchronization orders a prefetch behind its allocation": (
        "given x; offload x; sync; free x; take x; sync; prefetch x; sync; read x; free x"
    ),
    "a synchronization orders what is issued later": "given x; offload x; sync memory; free x",
    "the host knows what its stream waited for": "given x; offload x; memory>compute; sync compute; free x",
    "a copy that is kept is prefetched again": f"{AWAY}; keep x; {AGAIN}; keep x; {AGAIN}; free x",
    "given content is read": "given x; read x; free x",
    "a stale copy is offloaded again": (
        "take x; write x; sync; offload x; sync; write x; sync; offload x; sync; free x; take x; sync; "
        "prefetch x; sync; read x; free x"
    ),
    "a kept copy that is stale is offloaded again": (
        f"{AWAY}; keep x; sync; write x; sync; offload x; sync; free x; take x; sync; prefetch x; sync; read x; free x"
    ),
    "a buffer given on the host is prefetched and kept": "host x; take x; sync; keep x; sync; read x; free x",
    "a buffer given on the host and written is offloaded": (
        "host x; take x; sync; keep x; sync; write x; sync; offload x; sync; free x"
    ),
    "a buffer lies in another for a while": ("take s; lay y s; write y; read y; free y; lay y s; free y; free s"),
    "a kernel may read what it covers, as a batch normalization that writes dX over X": (
        "take s; write s; lay y s; turn s y; free y; free s"
    ),
    "parts are freed and copied one after the other": (
        "take x; write x; compute>memory; offload x[0:4]; mark memory; offload x[4:10]; mark memory; "
        "wait 1 compute; free x[0:4]; wait 2 compute; free x[4:10]; take x[4:10]; compute>memory; prefetch x[4:10]; "
        "take x[0:4]; compute>memory; prefetch x[0:4]; memory>compute; read x; free x"
    ),
    "parts are prefetched by other ranges": (
        f"{BOTH_FREED}; take x[0:2]; compute>memory; prefetch x[0:2]; take x[2:10]; compute>memory; "
        "prefetch x[2:10]; memory>compute; read x; free x"
    ),
    "a buffer is released with a part offloaded": (
        f"{BOTH_OFFLOADED}; memory>compute; free x[0:4]; free x; take x; compute>memory; prefetch x; memory>compute; "
        "read x; free x"
    ),
    "a buffer that lies in another is offloaded in parts": (
        "take s; lay x s; write x; compute>memory; offload x[0:4]; offload x[4:10]; memory>compute; free x; free s"
    ),
    "an exchange between its kernels": EXCHANGED,
    "a sum is offloaded behind its exchange": (
        "take x; write x; compute>communication; exchange x; communication>memory; offload x; sync memory; free x"
    ),
    "an exchange waits for an offload": (
        "take x; write x; compute>memory; offload x; memory>communication; exchange x; communication>compute; free x"
    ),
}


@pytest.mark.parametrize("text", VALID.values(), ids=VALID)
def test_valid_plans(text: str) -> None:
    check_plan(script(text))


UNWRITTEN, COPYING = "is read before anything was written", "before the compute stream waited for its copy"
GONE, NOT_ON_HOST = "is used while its memory is freed", "x is prefetched but not on the host"
REFUSED = [
    # Content.
    ("given x; take y; read x; read y", f"operation 3 (backward weights of conv1 (only)): y {UNWRITTEN}"),
    ("given x; offload x; sync; free x; take x; read x", f"x {UNWRITTEN}"),
    ("given x; free x; take x; read x", f"x {UNWRITTEN}"),
    ("host x; take x; read x", f"x {UNWRITTEN}"),
    ("host x; take x; sync; keep x; sync; write x; free x", "x is not on the host at the end"),
    # Order of streams.
    ("given x; offload x; write x", f"x is written {COPYING}"),
    ("given x; offload x; compute>memory; read x; prefetch x", "memory stream waited for its allocation"),
    (ROUND_TRIP.replace("prefetch x; ", "prefetch x; write x; "), f"x is written {COPYING}"),
    ("given x; mark memory; offload x; wait 0 compute; free x", f"x is released {COPYING}"),
    ("given x; offload x; sync compute; free x", f"x is released {COPYING}"),
    ("given x; sync; offload x; free x", f"x is released {COPYING}"),
    # Copies on the host.
    (f"{AWAY}; prefetch x; {AGAIN}; prefetch x", NOT_ON_HOST),
    ("take x; write x; sync; offload x; sync; write x; sync; free x; take x; sync; prefetch x", NOT_ON_HOST),
    (f"{AWAY}; keep x; sync; write x; sync; free x; take x; sync; prefetch x", NOT_ON_HOST),
    (f"{AWAY}; keep x; sync; offload x", "x is offloaded twice"),
    # Buffers in others.
    ("take s; lay y s; free s", "s is used while y lies in it"),
    ("take s; lay y s; lay z s", "s is used while y lies in it"),
    ("take s; lay y=11 s", "y is larger than s"),
    ("given s; offload s; lay y s", "s is covered before the compute stream waited for its copy"),
    ("given s; lay y s; free y; read s", f"s {UNWRITTEN}"),
    ("lay y s", "s is used while it is not allocated"),
    ("take s; take y; lay y s", "y is allocated twice"),
    ("given s; lay y s; read y", f"y {UNWRITTEN}"),
    ("take s; write s; lay y s; write y; turn s y", f"s {UNWRITTEN}"),
    ("take s; lay y s; free y[0:4]", "y lies in s and has no memory of its own"),
    # Parts of buffers.
    (
        f"{BOTH_FREED}; take x[0:4]; compute>memory; prefetch x[0:4]; memory>compute; read x",
        f"bytes 4 to 9 of x {GONE}",
    ),
    (
        (
            f"{BOTH_FREED}; take x[0:4]; compute>memory; prefetch x[0:4]; memory>compute; take x[4:10]; "
            "compute>memory; prefetch x[4:10]; read x"
        ),
        "bytes 4 to 9 of x is read before the compute stream waited for its prefetch",
    ),
    (f"{BOTH_FREED}; take x[0:4]; take x[4:10]; read x", f"bytes 0 to 3 of x {UNWRITTEN}"),
    (
        "take x; write x; compute>memory; offload x[0:4]; memory>compute; offload x[4:10]; free x[0:4]; free x[4:10]",
        f"bytes 4 to 9 of x is released {COPYING}",
    ),
    (
        f"{BOTH_FREED}; take x[0:4]; compute>memory; take x[4:10]; prefetch x[4:10]",
        "bytes 4 to 9 of x is prefetched before the memory stream waited for its allocation",
    ),
    *(
        (f"{BOTH_FREED}; {step}", f"bytes 0 to 3 of x {GONE}")
        for step in ("free x[0:4]", "offload x[0:4]", "prefetch x", "write x", "lay y x")
    ),
    (f"{BOTH_FREED}; take x", "x is allocated twice"),
    (f"{BOTH_OFFLOADED}; take x[0:4]", "bytes 0 to 3 of x is allocated twice"),
    (f"{BOTH_OFFLOADED}; offload x[0:4]", "bytes 0 to 3 of x is offloaded twice"),
    (f"{BOTH_OFFLOADED}; free x[4:11]", "x has 10 B, found 7 B from byte 4 on"),
    (f"{BOTH_OFFLOADED}; free x[-1:1]", "x has 10 B, found 2 B from byte -1 on"),
    (f"{BOTH_OFFLOADED}; offload x[3:3]", "x has 10 B, found 0 B from byte 3 on"),
    ("take x; write x; compute>memory; offload x[0:4]; prefetch x", "bytes 4 to 9 of x is prefetched but not on"),
    # Exchanges: the memory stream knows of the kernel that wrote x, and nobody of the end of the exchange.
    *(
        (f"take x; write x; compute>communication; exchange x; wait 0 memory; {step}", message)
        for step, message in (
            ("write x", f"x is written {COPYING}"),
            ("read x", "x is read before the compute stream waited for its exchange"),
            ("free x", f"x is released {COPYING}"),
            ("offload x", "x is offloaded before the memory stream waited for its exchange"),
            ("prefetch x", NOT_ON_HOST),
        )
    ),
    (
        "take x; write x; compute>communication; wait 0 memory; offload x; exchange x",
        "x is exchanged before the stream waited for its copy",
    ),
    # The copy was taken of the GPU's own gradient.
    (
        (
            "take x; write x; compute>memory; offload x; memory>communication; exchange x; communication>memory; "
            "prefetch x"
        ),
        NOT_ON_HOST,
    ),
]


@pytest.mark.parametrize(("text", "fragment"), REFUSED)
def test_plans_that_break_the_contract(text: str, fragment: str) -> None:
    message = refusal(script(text))
    assert message.startswith("hand: operation ")
    assert fragment in message


WITHOUT = {
    ROUND_TRIP: {
        0: "x is used while it is not allocated",
        1: "x is offloaded before anything was written",
        2: "event 0 is waited for before it is recorded",
        3: "x is offloaded before the memory stream waited for its kernel",
        4: NOT_ON_HOST,
        5: "event 1 is waited for before it is recorded",
        6: f"x is released {COPYING}",
        7: "x is allocated twice",
        8: "x is used while it is not allocated",
        9: "event 2 is waited for before it is recorded",
        10: "x is prefetched before the memory stream waited for its allocation",
        11: f"x {UNWRITTEN}",
        12: "event 3 is waited for before it is recorded",
        13: "x is read before the compute stream waited for its prefetch",
        14: "",  # the check does not know which kernels a network needs
        15: "x is still allocated at the end",
    },
    EXCHANGED: {
        0: "x is used while it is not allocated",
        1: "x is exchanged before anything was written",
        2: "event 0 is waited for before it is recorded",
        3: "x is exchanged before the stream waited for its kernel",
        4: "",
        5: "event 1 is waited for before it is recorded",
        6: "x is read before the compute stream waited for its exchange",
        7: "",
        8: "x is still allocated at the end",
    },
}


@pytest.mark.parametrize(
    ("text", "deleted", "fragment"), [(text, *each) for text, cases in WITHOUT.items() for each in cases.items()]
)
def test_each_operation_is_needed_but_some(text: str, deleted: int, fragment: str) -> None:
    plan = script(text)
    assert len(plan.operations) == len(WITHOUT[text])
    rest = with_operations(plan, [each for at, each in enumerate(plan.operations) if at != deleted])
    if fragment:
        assert fragment in refusal(rest)
    else:
        check_plan(rest)


@pytest.mark.parametrize(
    ("doubled", "fragment"),
    [
        (Allocate, "operation 1 (allocate x): x is allocated twice"),
        (RecordEvent, "event 0 is recorded twice"),
        (Offload, "x is offloaded twice"),
        (Release, "x is used while it is not allocated"),
        (Prefetch, NOT_ON_HOST),
        (Compute, ""),
        (WaitEvent, ""),
    ],
)
def test_the_first_operation_of_a_kind_twice_in_a_row(doubled: type[Operation], fragment: str) -> None:
    """A kernel may be recomputed, and a second wait for an event finds it reached."""
    plan = script(ROUND_TRIP)
    first = next(at for at, each in enumerate(plan.operations) if isinstance(each, doubled))
    twice = with_operations(plan, [*plan.operations[: first + 1], *plan.operations[first:]])
    if fragment:
        assert fragment in refusal(twice)
    else:
        check_plan(twice)
