from dataclasses import replace
from pathlib import Path

import pytest

from tests.toy import TOY_SERVER
from vdnnsim.hardware.server import MeasuredKernels
from vdnnsim.validation.validate import differences

MEASURED = replace(
    TOY_SERVER,
    kernels=MeasuredKernels(Path("toy.kernels.csv"), "ab12", tf32=False, channels_last=False),
    provenance=(("driver", "1.1"), ("cudnn", "9.19"), ("date", "2026-01-01"), ("sm_clock", "100 MHz seen")),
)


def test_differences_of_provenance() -> None:
    now = (("driver", "1.1"), ("cudnn", "9.19"), ("date", "2026-02-02"), ("sm_clock", "200 MHz seen"))
    assert differences(MEASURED, now) == ()
    # Another driver and what only one side has.
    assert differences(MEASURED, (("driver", "1.2"), ("torch", "2.11"))) == (
        "driver: 1.1 in the profile toy, 1.2 here",
        "cudnn: 9.19 in the profile toy, nothing here",
        "torch: nothing in the profile toy, 2.11 here",
    )
    # A profile without measured kernels says so.
    assert differences(TOY_SERVER, (("driver", "1.2"),)) == (
        "toy: no kernel of this machine was measured, all of its times are predicted",
    )


@pytest.mark.parametrize(
    ("profile", "now", "which"),
    [(True, True, "the profile toy and this GPU"), (True, False, "the profile toy"), (False, True, "this GPU")],
)
def test_a_pretended_gpu_is_named_first(profile: bool, now: bool, which: str) -> None:  # noqa: FBT001
    pretended = ("pretended", "by vdnnsim")
    server = replace(MEASURED, provenance=(*MEASURED.provenance, pretended)) if profile else MEASURED
    found = differences(server, (("driver", "1.1"), ("cudnn", "9.19"), *([pretended] if now else [])))
    assert found == (f"{which}: pretended, and takes the times that it was given",)
