"""The layouts that are tried for a number of GPUs."""

from vdnnsim.study.usual_layouts import data_layouts_of, layouts_of


def test_usual_layouts() -> None:
    """Over two hosts of two GPUs, a copy for each host as well; three GPUs on hosts of two make no equal groups."""
    assert layouts_of(8, 8) == (
        "fsdp=8",
        "fsdp=4,tp=2",
        "tp=8",
        "pp=2,fsdp=4",
        "zero2=8",
        "zero1=8",
        "ddp=8",
        "fsdp=8,offload=cpu",
    )
    assert layouts_of(4, 2) == (
        "fsdp=4",
        "hsdp=2x2",
        "fsdp=2,tp=2",
        "pp=2,fsdp=2",
        "pp=2,tp=2",
        "zero2=4",
        "zero1=4",
        "ddp=4",
        "fsdp=4,offload=cpu",
    )
    # Stages on one of two hosts each, on four of 32, and on two of ten.
    assert [each for each in layouts_of(16, 8) if "pp" in each] == ["pp=2,fsdp=8", "pp=2,tp=8"]
    assert [each for each in layouts_of(256, 8) if "pp" in each] == ["pp=4,fsdp=64", "pp=4,fsdp=8,tp=8"]
    assert [each for each in layouts_of(80, 8) if "pp" in each] == ["pp=2,fsdp=40", "pp=2,fsdp=5,tp=8"]
    assert [each for each in layouts_of(40, 8) if "pp" in each] == ["pp=2,fsdp=20"]
    assert layouts_of(3, 2) == ("fsdp=3", "zero2=3", "zero1=3", "ddp=3", "fsdp=3,offload=cpu")


def test_layouts_of_micro_batches() -> None:
    """DDP reduces gradients of the last alone, FSDP those of each or of the last, and none are on the host."""
    found = layouts_of(2, 2, accumulates=True)
    assert found == ("fsdp=2", "fsdp=2,sync=last", "tp=2", "zero2=2", "zero1=2,sync=last", "ddp=2,sync=last")
    assert data_layouts_of(2, 2, accumulates=True) == ("fsdp=2", "fsdp=2,sync=last", "ddp=2,sync=last")
