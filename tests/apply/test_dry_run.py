"""On which devices a dry run has its tensors, by devices on which nothing computes."""

from collections.abc import Sequence

import pytest
import torch

from calibration.apply import workspaces
from calibration.capture.tape import Call
from tests.apply.models import MODELS
from tests.apply.training import asked, planned
from vdnnsim.dnn.layers import Phase

GPU, HOST = torch.device("cuda", 0), torch.device("cpu")


def test_a_call_knows_its_storages_by_the_numbers_of_the_step() -> None:
    """Each touches what its operation in the captured step does: what autograd saves in between is the same storage."""
    case = MODELS["perceptron"]
    found = asked(case, case.make_model(), "pytorch")
    step = found.captured
    assert any(call.read for call in found.tape.calls)
    for operation, call in zip(step.operations, found.tape.calls, strict=True):
        touched = {step.tensors[each.memory].storage for each in operation.operands}
        assert {*call.read, *call.made} == touched, operation.name


def test_what_an_operation_left_on_the_host_is_there_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a perceptron have the result of tanh on the host: its backward and two products read it there."""
    case = MODELS["perceptron"]
    model = case.make_model()
    found = asked(case, model, "pytorch")
    places: dict[str, set[tuple[torch.device, ...]]] = {}

    def ran(call: Call, on: Sequence[torch.device], _: torch.device, *, is_timed: bool) -> workspaces.Measured:
        places.setdefault(str(call.func), set()).add(tuple(on))
        assert not is_timed
        return workspaces.Measured(made=(HOST if "tanh.default" in str(call.func) else GPU,) * len(call.made))

    monkeypatch.setattr(workspaces, "_ran", ran)
    run = workspaces.DryRun(GPU, is_timed=False)
    for operation, call in zip(found.captured.operations, found.tape.calls, strict=True):
        if operation.phase is not Phase.UPDATE:
            assert run.measured(call).changes == range(0)
    (storage,) = run.elsewhere
    assert run.elsewhere == {storage: HOST}
    assert places["aten.tanh_backward.default"] == {(GPU, HOST)}
    assert {name for name, on in places.items() if any(HOST in each for each in on)} == {
        "aten.tanh_backward.default",
        "aten.addmm.default",
        "aten.mm.default",
    }
    assert storage in found.tape.let_go
    assert storage not in found.tape.without(run.elsewhere.keys()).let_go
    assert storage in planned(case, model, "save_on_cpu").loop.agenda.moved
