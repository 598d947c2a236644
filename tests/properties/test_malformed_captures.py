"""Whatever a file of a captured step holds, reading and replaying it works or answers with one line."""

import json
import tempfile
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.captured_steps import chain, checkpointed, residual
from tests.hostile.damage import as_yaml, changed
from vdnnsim.dnn.captured_file import read_captured_step
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import InputError
from vdnnsim.plans.schedule import iteration

DOCUMENTS = [json.loads(msgspec.json.encode(step)) for step in (chain(), residual(), checkpointed())]


def answer(data: bytes) -> CapturedWorkload | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.step.json")
        path.write_bytes(data)
        try:
            return CapturedWorkload.of(read_captured_step(path)[0])
        except InputError as failure:
            message = str(failure)
            assert message.splitlines() == [message]
    return None


@given(st.sampled_from(DOCUMENTS).flatmap(changed))
def test_a_changed_file_is_read_or_refused_in_one_line(document: object) -> None:
    """What can be read has layers whose phases are all operations, once each, backward in its order."""
    workload = answer(as_yaml(document))
    if workload is None:
        return
    runs = iteration(workload)
    operations = [x for run in runs for x in workload.step.operations_of(run.layer.index, run.phase)]
    assert sorted(map(id, operations)) == sorted(map(id, workload.step.operations))
    backward = [each for each in workload.step.operations if each.phase is Phase.BACKWARD]
    assert [each for each in operations if each.phase is Phase.BACKWARD] == backward
    assert all(each.outputs for each in workload.graph.layers if Phase.FORWARD in each.training_phases)
    maps = [workload.map_bytes(each.index) for each in workload.graph.maps]
    assert min(maps) >= 0
