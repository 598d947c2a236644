"""Files of captured steps: what is written is read, and what cannot be right is refused in one line."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.captured_ranks import sharded
from tests.captured_steps import chain, checkpointed, residual
from tests.refusals import refusal as refused_with
from vdnnsim.dnn import captured_file
from vdnnsim.dnn.captured_check import MOST_OF_A_KIND
from vdnnsim.dnn.captured_file import read_captured_step, write_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.errors import OutputError, ScenarioError

Change = Callable[[dict[str, Any]], object]


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    message = refused_with(ScenarioError, read_captured_step, path)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def _gather(**changed: object) -> dict[str, object]:
    return {"kind": "all_gather", "nbytes": 16, "element_type": "float32", "ranks": 2, **changed}


def _lstm(**changed: int) -> dict[str, object]:
    sizes = {"steps": 5, "rows": 10, "input_size": 3, "hidden_size": 1, "layers": 1, "gates": 4}
    return {"kind": "recurrent", **sizes, **changed}


def _sent_back() -> CapturedStep:
    """A step that sends to the rank before, whose stride is below 0 (`Collective`)."""
    step = chain()
    sent = Collective(CollectiveKind.SEND, 16, "float32", ranks=2, stride=-1)
    operations = (msgspec.structs.replace(step.operations[0], collective=sent), *step.operations[1:])
    return msgspec.structs.replace(step, model="sent back", operations=operations)


@pytest.mark.parametrize(
    "step", [chain(), residual(), checkpointed(), sharded(), _sent_back()], ids=lambda each: each.model
)
def test_what_is_written_is_read(tmp_path: Path, step: CapturedStep) -> None:
    path = tmp_path / "a.step.json"
    write_captured_step(step, path)
    assert read_captured_step(path) == (step, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not JSON"),
        (b"version: 1", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1, 2]", "expected `object`, got `array`"),
        (b'{"traceEvents": []}', "found JSON without 'version'"),
        (b'{"version": 1, "nodes": []}', "found JSON without 'operations'"),
        (b'{"version": 2, "operations": 0}', "version: found 2, expected 1"),
        (b'{"version": "1", "operations": 0}', "version: found '1', expected 1"),
        (b'{"version": 1, "operations": []}', "object missing required field `modules`"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    assert refusal(tmp_path / "a.json", data).startswith(message)


def test_deep_or_large_json_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path / "a.json", b"[" * 100_000).startswith("expected `object`, got `array`")
    deep = b'{"version": 1, "operations": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert "is not JSON" in refusal(tmp_path / "a.json", deep)
    # A file beyond the limit is refused.
    monkeypatch.setattr(captured_file, "LARGEST_FILE_BYTES", 2**20)
    assert refusal(tmp_path / "a.json", b" " * (2**20 + 1)).startswith("is larger than 1 MiB")


def test_folders_and_what_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="is a folder"):
        read_captured_step(tmp_path)
    with pytest.raises(ScenarioError, match=r"none\.json: cannot be read"):
        read_captured_step(tmp_path / "none.json")
    with pytest.raises(ScenarioError, match="no file can have this name"):
        read_captured_step(Path("a\0b"))
    (tmp_path / "a").touch()
    with pytest.raises(OutputError, match="a: is a file"):
        write_captured_step(chain(), tmp_path / "a" / "b.json")


def put(path: str, value: object) -> Change:
    """Return what sets `operations.3.module` of a file."""
    *way, last = path.split(".")

    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for each in way:
            place = place[int(each) if each.isdigit() else each]
        place[int(last) if last.isdigit() else last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("surprise", 1, "object contains unknown field `surprise`"),
        ("operations.3.surprise", 1, "operations[3]: object contains unknown field `surprise`"),
        ("storages.4.nbytes", -1, "storages[4].nbytes: found -1, expected an integer from 0 to 1125899906842624"),
        ("storages.4.nbytes", 10**30, f"storages[4].nbytes: found {10**30}, expected an integer from 0 to {2**50}"),
        ("storages.4.nbytes", "8", "storages[4].nbytes: expected `int`, got `str`"),
        ("storages.4.kind", "maps", "storages[4].kind: invalid enum value 'maps'"),
        ("storages.4.name", "a\nb", r"storages[4].name: found 'a\nb', expected one line of 1 to 1000 printable"),
        ("storages.4.element_type", "flaot32", "storages[4].element_type: 'flaot32' is not an element type"),
        ("storages.4.freed_after", 99, "storages[4].freed_after: found 99, expected an integer from 0 to 17"),
        ("storages.5.freed_after", 3, "storages[5].freed_after: found 3, expected at least 15, which still touches it"),
        ("storages.10.constant", True, "storages[10].constant: found true, expected false of what is not given"),
        ("storages.3.given", False, "operations[0].operands[0]: reads storage 3 (input) before anything wrote it"),
        ("tensors.3.storage", 99, "tensors[3].storage: found 99, expected the number of one of the 23 storages"),
        ("tensors.3.offset_bytes", 33, "tensors[3].offset_bytes: found 33, expected an integer from 0 to 32"),
        ("tensors.3.shape", [2, -1], "tensors[3].shape[1]: found -1, expected an integer from 0 to"),
        ("tensors.3.shape", [1] * 65, "tensors[3].shape: found 65 sizes, expected at most 64"),
        ("operations.3.operands.0.tensor", -1, "operations[3].operands[0].tensor: found -1, expected the number of"),
        ("operations.3.operands.0.position", 1, "operations[3].operands[0].position: is of the view of layers"),
        ("operations.3.layer", 2, "operations[3].layer: is of the view of layers"),
        ("storages.3.owner", 0, "storages[3].owner: is of the view of layers"),
        ("operations.3.module", 6, "operations[3].module: found 6, expected the number of one of the 6 modules"),
        ("operations.3.saves", [99], "operations[3].saves[0]: found 99, expected the number of one of the 23 storages"),
        ("operations.3.saves", [10], "operations[3].saves[0]: reads storage 10 (fc) before anything wrote it"),
        ("operations.3.forward", 0, "operations[3].forward: found 0, expected none of it, for it is of forward"),
        ("operations.9.forward", 9, "operations[9].forward: found 9, expected an operation before it, 0 to 8"),
        ("operations.9.forward", -1, "operations[9].forward: found -1, expected an operation before it, 0 to 8"),
        ("operations.9.flop", {"matrix product": -2}, "operations[9].flop.matrix product: found -2, expected"),
        ("operations.9.temporary_bytes", -2, "operations[9].temporary_bytes: found -2, expected an integer"),
        ("operations.0.phase", "backward", "operations[0].phase: found 'backward', expected 'forward' here"),
        ("operations.3.phase", "backward weights", "operations[3].phase: found 'backward weights', expected 'forward'"),
        ("operations.16.phase", "update", "operations[16].forward: found 0, expected none of it, for it is of update"),
        ("mode", "inference", "operations[8].phase: found 'backward', expected 'forward' here"),
        ("operations.0.work.kernel", [1], "operations[0].work.kernel: found 1 sizes, expected one for each of 1 to 3"),
        ("operations.0.work.groups", 0, "operations[0].work.groups: found 0, expected an integer from 1 to"),
        ("operations.0.work.computes", ["dx"], "operations[0].work.computes[0]: 'dx' is not what has a gradient"),
        ("operations.0.collective", _gather(ranks=1), "operations[0].collective.ranks: found 1, expected"),
        ("operations.0.collective", _gather(nbytes=-1), "operations[0].collective.nbytes: found -1, expected"),
        *(
            (
                "operations.0.collective",
                _gather(stride=each),
                f"operations[0].collective.stride: found {each}, expected",
            )
            for each in (0, -1)
        ),
        ("operations.0.collective", _gather(element_type="f"), "operations[0].collective.element_type: 'f' is not an"),
        ("ranks", 0, "ranks: found 0, expected an integer from 1 to"),
        ("parallel", "fsdp\n", "parallel: found 'fsdp\\n', expected one line of"),
        ("operations.5.work.m", -1, "operations[5].work.m: found -1, expected an integer from 0 to"),
        ("operations.5.work", _lstm(gates=5), "operations[5].work.gates: found 5, expected an integer from 1 to 4"),
        ("operations.5.work", _lstm(steps=0), "operations[5].work.steps: found 0, expected an integer from 1 to"),
        ("operations", [], "operations: found 0 of them, expected 1 to 500,000"),
        ("batch_size", 0, "batch_size: found 0, expected an integer from 1 to 1000000"),
        ("model", "", "model: found '', expected one line of 1 to 1000 printable characters"),
        ("notes", ["\u2028"], r"notes[0]: found '\u2028', expected one line of 1 to 1000 printable characters"),
        ("modules.0.path", "\x00", r"modules[0].path: found '\x00', expected one line of 0 to 1000 printable"),
    ],
)
def test_what_cannot_be_right_is_refused_with_its_place(tmp_path: Path, path: str, value: object, message: str) -> None:
    document = json.loads(msgspec.json.encode(chain()))
    put(path, value)(document)
    assert refusal(tmp_path / "a.json", json.dumps(document).encode())[: len(message)] == message


def test_an_update_is_behind_all_and_what_nobody_writes_is_refused(tmp_path: Path) -> None:
    document = json.loads(msgspec.json.encode(chain()))
    document["operations"].append(document["operations"][0])
    message = refusal(tmp_path / "a.json", json.dumps(document).encode())
    assert message == "operations[18].phase: found 'forward', expected 'update' here"
    document = json.loads(msgspec.json.encode(chain()))
    document["storages"].append(document["storages"][5])
    message = refusal(tmp_path / "a.json", json.dumps(document).encode())
    assert message == "storages[23]: no operation writes conv, expected one that does, or that it is given"
    # A million storages are refused.
    document = json.loads(msgspec.json.encode(chain()))
    document["storages"] += [{"name": "x", "kind": "weights", "nbytes": 1, "element_type": "int8"}] * 1_000_000
    message = refusal(tmp_path / "a.json", json.dumps(document).encode())
    assert message == f"storages: found 1,000,023 of them, expected 1 to {MOST_OF_A_KIND:,}"


def test_a_step_that_nobody_could_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="batch_size: found 0"):
        write_captured_step(msgspec.structs.replace(chain(), batch_size=0), tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()
