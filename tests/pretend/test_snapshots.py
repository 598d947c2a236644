"""Snapshots that PyTorch itself writes on a pretended GPU, read by the reader, and held against the model."""

import random
from pathlib import Path

import pytest
import torch

from tests.pretended_gpu import free_cache
from tests.pytorch_allocator.random_traces import SETTINGS
from tests.pytorch_allocator.twin import allocator_set
from vdnnsim.memory.settings import parse_settings
from vdnnsim.recordings.snapshot import read_recordings
from vdnnsim.recordings.snapshot_comparison import compare
from vdnnsim.recordings.snapshot_replay import recorded_peaks, start_of

pytestmark = pytest.mark.pretend

UNLIMITED = [words for words in SETTINGS if "per_process_memory_fraction" not in words]


def work(requests: int) -> None:
    """Ask for tensors on two streams, give them back in any order, and empty the cache half-way."""
    numbers = random.Random(1)  # noqa: S311  # picks sizes
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    held: list[torch.Tensor] = []
    for number in range(requests):
        if held and numbers.random() < 0.45:
            held.pop(numbers.randrange(len(held)))
            continue
        with torch.cuda.stream(side if numbers.random() < 0.3 else torch.cuda.current_stream()):
            held.append(torch.empty(int(2 ** numbers.uniform(8, 26)), dtype=torch.uint8, device="cuda"))
        if number == requests // 2:
            torch.cuda.empty_cache()


@pytest.mark.parametrize("words", UNLIMITED, ids=lambda words: words or "not set")
def test_a_snapshot_of_pytorch_is_replayed_to_the_address_and_to_its_peaks(tmp_path: Path, words: str) -> None:
    free_cache()
    settings = parse_settings(words)
    path = tmp_path / "s.pickle"
    with allocator_set(settings, 0, 2**40):
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.memory._record_memory_history(context=None, clear_history=True)  # noqa: SLF001  # so documented
        work(600)
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]  # noqa: SLF001
        torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001
        most_bytes = torch.cuda.max_memory_reserved()
        free_cache()

    (recording,) = read_recordings(path)
    start = start_of(recording, settings, path.name)

    assert parse_settings(recording.settings) == settings
    assert recording.expandable == settings.expandable_segments
    assert recorded_peaks(recording, start, settings).reserved_bytes == most_bytes
    agreement = compare(recording, start, settings)
    assert agreement is not None
    assert agreement.whole
