"""What a run needs of device, host and pinned memory, and what there is."""

from dataclasses import replace

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.report.budgets import budgets


def test_a_process_of_pytorch_holds_more_of_the_host_than_it_pins(result: ScenarioResult) -> None:
    """`dyn` has a pool of 60 B, and 10 B on the host; the process has 7 B there, and 100 of 1,000 may be pinned."""
    host = replace(result.server.host, process_bytes=7, pinnable_bytes=100)
    known = replace(result, server=replace(result.server, host=host))

    assert budgets(replace(known, memory_model=MemoryModel.PYTORCH)) == (
        "Memory that dyn needs: device 60 B of 1000 B, host 17 B of 1000 B, pinned 10 B of 100 B."
    )
    assert budgets(known) == "Memory that dyn needs: device 60 B of 1000 B, host 10 B of 1000 B, pinned 10 B of 100 B."


def test_of_several_gpus_each_has_its_part_of_the_host(result: ScenarioResult) -> None:
    assert budgets(replace(result, gpus=2)) == (
        "Memory that dyn needs for each GPU: device 60 B of 1000 B, host 10 B of 500 B, pinned 10 B of 500 B."
    )
