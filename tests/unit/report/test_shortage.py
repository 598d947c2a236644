"""`keep(p)` takes 1020 B where there are 1000 B; `move(m)` takes 60 B."""

from dataclasses import replace

from vdnnsim.analysis.results import PolicyResult
from vdnnsim.plan.placement import Pool
from vdnnsim.report.shortage import Shortage, shortage


def test_what_is_lacking(move: PolicyResult, keep: PolicyResult) -> None:
    assert keep.refusal is not None
    assert shortage(move) is None
    assert shortage(keep) is Shortage.GPU
    assert shortage(replace(move, refusal=keep.refusal)) is Shortage.GAPS
    assert shortage(replace(keep, refusal=replace(keep.refusal, pool=Pool.HOST))) is Shortage.HOST


def test_all_of_the_memory_is_not_too_much(keep: PolicyResult) -> None:
    assert shortage(replace(keep, metrics=replace(keep.metrics, max_memory_bytes=1000))) is Shortage.GAPS
    assert shortage(replace(keep, metrics=replace(keep.metrics, max_memory_bytes=1001))) is Shortage.GPU
