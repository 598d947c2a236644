"""`vdnnsim read SNAPSHOT` as users call it."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.refusals import refusal
from tests.unit.recordings.snapshots import HIGH, LOW, WHOLE, block, event, freed, segment, snapshot, written
from vdnnsim.cli.recordings import read, read_snapshot
from vdnnsim.errors import VdnnsimError
from vdnnsim.report.tables.snapshots import CSV_COLUMNS
from vdnnsim.units import MIB


def called(path: Path, *options: str) -> str:
    done = CliRunner().invoke(read_snapshot, [str(path), *options], catch_exceptions=False)
    assert done.exit_code == 0
    return " ".join(done.stdout.split())


def refused(path: Path, *options: str) -> str:
    return refusal(VdnnsimError, CliRunner().invoke, read_snapshot, [str(path), *options], catch_exceptions=False)


def test_a_recording_beside_other_settings(tmp_path: Path) -> None:
    """20 and 30 in segments; 8, 9 and 30 in growing ones fill three pages, for the 30 do not go where the 8 were."""
    text = called(written(tmp_path, WHOLE))
    assert "as recorded 0 39.0 MiB 50.0 MiB 11.0 MiB" in text
    assert "pytorch 0 39.0 MiB 50.0 MiB 11.0 MiB" in text
    assert "expandable_segments:True 0 39.0 MiB 60.0 MiB 21.0 MiB" in text
    assert "GPU 0: at your peak 39.0 MiB of 50.0 MiB reserved are used; with pytorch the same run reserves 50.0" in text
    assert "the model puts 3 of 3 requests where PyTorch put them, and takes segments 2 of 2 times when" in text


def test_sizes_shortage_and_settings_are_stated(tmp_path: Path) -> None:
    """2048.5 MiB in a segment of 2050."""
    events = [event("segment_alloc", LOW, 2050), event("alloc", LOW, 2048.5)]
    content = snapshot([segment(LOW, block(2048.5), block(1.5, "inactive"))], events)
    assert "GPU 0: at your peak 2.00 of 2.00 GiB reserved are used" in called(written(tmp_path, content))
    # Of 40 MiB, 50 lack 10, as the 20 with 9 in use and the 30 both stay; 47 lack 7, which is known to 8.
    path = written(tmp_path, WHOLE)
    text = called(path, "--memory", "40 MiB", "--memory-model", "best_fit", "--memory-model", "pytorch")
    assert "best_fit 0 39.0 MiB 47.0 MiB 8.00 MiB NO, short by 8.00 MiB" in text
    assert "it would not fit the 40.0 MiB that there are: with best_fit by 8.00 MiB; with pytorch by 10.0 MiB" in text
    assert "it would fit the 12.0 GiB there are" in called(path, "--hardware", "titan_x_maxwell")
    # Settings that are not modelled are named.
    content = {**WHOLE, "allocator_settings": {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}}
    assert "how its allocator was set is not modelled, and taken for the default: 'backend' is not" in called(
        written(tmp_path, content)
    )


def test_the_table_is_written_for_machines(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    path = written(tmp_path, WHOLE)
    called(path, "--csv", str(table), "--allocator", "max_split_size_mb:20", "--memory", "1GiB")
    with table.open(newline="") as file:
        header, first, second = csv.reader(file)
    assert tuple(header) == CSV_COLUMNS
    assert first == ["as recorded", "0", str(39 * 2**20), str(50 * 2**20), ""]
    assert second == ["max_split_size_mb:20", "0", str(39 * 2**20), str(50 * 2**20), "0"]
    called(path, "--csv", str(table), "--memory-model", "ideal")
    assert table.read_text().splitlines()[-1] == f"ideal,0,{39 * 2**20},{39 * 2**20},"


def test_particulars_of_a_recording_are_listed(tmp_path: Path) -> None:
    """Two GPUs: one that began in the middle, one whose segments grow, in a pool of a graph; and settings."""
    content = snapshot(
        [
            segment(HIGH, block(15, "inactive"), block(5)),
            segment(LOW, block(20), gpu=1, segment_pool_id=(0, 1), is_expandable=True),
        ],
        [*freed(HIGH, 8), event("oom", 0, 99), event("what", 0, 0)],
        [*freed(LOW + 5 * MIB, 1), event("alloc", LOW, 20, pool_id=(0, 1))],
        allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.5"},
    )
    text = called(written(tmp_path, content))
    for line in (
        "it was recorded with PYTORCH_ALLOC_CONF=garbage_collection_threshold:0.5",
        "its history begins with 13.0 MiB in use, in 2 blocks: replays ask for them first, from the lowest address on",
        "its segments could grow and its history begins in the middle: replays are not compared by address",
        "PyTorch found no room 1 times; replays do not ask for that",
        "pools of CUDA graphs or of one's own are replayed as if each were a stream",
        "1 entries of an unknown kind are left out: 'what'",
        "garbage_collection_threshold does nothing without per_process_memory_fraction below 1",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--allocator", "expandable"), "--allocator: found 'expandable', expected settings"),
        (("--allocator", "cudnn_benchmark:True"), "cudnn_benchmark: found for a snapshot, which has its searches"),
        (("--memory-model", "mine"), "--memory-model: 'mine' is not a memory model"),
        (("--memory", "much"), "--memory: found 'much', expected a number with one of the units"),
        (("--memory", "1GB", "--hardware", "h200"), "--memory: found beside --hardware, expected one of the two"),
        (("--hardware", "mine"), "'mine' is not a hardware profile"),
    ],
)
def test_wrong_options_are_refused_in_one_line(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    assert refused(written(tmp_path, WHOLE), *options).startswith(message)


def test_a_snapshot_without_a_history_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, snapshot([segment(LOW, block(20))], []))
    assert "has no history of requests, expected a snapshot that was taken after torch.cuda.memory._record" in refused(
        path
    )
    # A snapshot is recognized by its content.
    path = written(tmp_path, WHOLE).rename(tmp_path / "whatever.json")
    assert "at your peak" in " ".join(read_command(path).stdout.split())


def read_command(path: Path) -> Result:
    return CliRunner().invoke(read, [str(path)])
