"""What a run needs of device, host and pinned memory, and what there is."""

from dataclasses import replace

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.report.findings import budgets


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


def test_what_does_not_fit_needs_what_it_uses_at_once(result: ScenarioResult, keep: PolicyResult) -> None:
    """10 + 20 + 990 B; without a capacity its pool grew to 2,000, of which it would have given back."""
    grown = replace(keep, trace=replace(keep.trace, pool_bytes=2000))

    assert budgets(replace(result, results=(grown,))).startswith(
        "Memory that keep(p) needs: device 1020 B of 1000 B, host 0 B"
    )


def test_a_peak_of_the_search_for_convolutions_is_told(result: ScenarioResult) -> None:
    rows = tuple(replace(each, trace=replace(each.trace, peaks_in_search=True)) for each in result.results)

    assert budgets(replace(result, results=rows)).endswith(
        ", the most while cuDNN searches for convolutions in the first iteration."
    )
