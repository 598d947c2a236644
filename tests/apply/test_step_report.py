"""Reports of a loop: the line after the third step, traced steps, and plans with measured times."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pytest
import torch
from torch import nn

from calibration.apply.step_hooks import StepHooks
from tests.apply.models import Network, backward, loss, rows
from tests.apply.training import alike, requested
from vdnnsim.analysis.measured_step import measured_operations, operation_seconds, planned_s
from vdnnsim.api.named import chosen_memory_model
from vdnnsim.api.planning import Planned, plan
from vdnnsim.api.step_report import host_seconds
from vdnnsim.errors import PolicyError
from vdnnsim.plans.live_step import Level, Way


@pytest.fixture(scope="module")
def model() -> Network:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


@pytest.fixture(scope="module")
def offloading(model: Network) -> Planned:
    return requested(model, rows(), "save_on_cpu").planned()


@pytest.fixture
def made(offloading: Planned) -> Planned:
    """A plan without a report yet."""
    return offloading._request.planned()  # noqa: SLF001


def train(made: Planned, model: Network, steps: int) -> None:
    for _ in range(steps):
        with made.apply(model):
            backward(loss(model(rows())))
        model.zero_grad()


def test_one_line_after_the_third_step(made: Planned, model: Network, capsys: pytest.CaptureFixture[str]) -> None:
    train(made, model, 2)
    assert capsys.readouterr().err == ""
    train(made, model, 3)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("vdnnsim: step 3: ")
    assert "NVIDIA GeForce RTX 4090" in line
    assert "no peak" in line


def test_a_step_that_left_the_plan_is_not_reported(
    made: Planned, model: Network, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is the one after it, whose peak would be that of both."""
    train(made, model, 2)
    with pytest.warns(UserWarning, match="the plan of Sequential was left"), made.apply(model):
        backward(loss(model(torch.randn(3, 16))))
    train(made, model, 1)
    assert capsys.readouterr().err == ""
    train(made, model, 1)
    assert capsys.readouterr().err.startswith("vdnnsim: step 5: ")


def test_a_traced_step_is_written_beside_its_prediction(made: Planned, model: Network, tmp_path: Path) -> None:
    made.trace(tmp_path / "traced")
    train(made, model, 1)
    step = made._reporter.recorded  # noqa: SLF001
    assert step is not None
    operations = [each.phase.value for each in made.loop.schedule.captured.operations]
    updates = operations.index("update")
    assert [number for each in step.stretches for number in each.operations] == list(range(updates))
    ends = [time for each in step.stretches for time in (each.start_s, each.end_s)]
    assert ends == sorted(ends)
    assert ends[0] >= 0
    assert ends[-1] == step.seconds
    for way in Way:
        copies = [each for each in step.copies if each.way is way]
        assert sum(len(each.extent) for each in copies) == made.loop.schedule.offloaded_bytes
        assert {each.storage for each in copies} == made.loop.schedule.offloaded
        assert all(0 <= each.start_s <= each.end_s <= step.seconds for each in copies)
    events: list[dict[str, Any]] = json.loads((tmp_path / "traced/trace.json").read_text())["traceEvents"]
    slices = [each for each in events if each["ph"] == "X" and each["pid"] == 1]
    parts = len(step.stretches), len(step.copies), len(step.pauses)
    assert tuple(sum(each["tid"] == thread for each in slices) for thread in (1, 2, 3)) == parts
    assert {each["pid"] for each in events} == {0, 1}
    assert sorted(each.name for each in (tmp_path / "traced").iterdir()) == ["step.json", "trace.json"]


def test_other_steps_are_not_timed(made: Planned, model: Network, tmp_path: Path) -> None:
    copy_stream = made.loop.copy_stream
    made.trace(tmp_path)
    train(made, model, 4)
    assert (made.loop.copy_stream, made.loop.make_hooks) == (copy_stream, StepHooks)
    assert made.apply(model).func is type(made.loop).apply.__wrapped__  # type: ignore[attr-defined]


def test_a_traced_step_changes_no_bit(model: Network, made: Planned, tmp_path: Path) -> None:
    batch, found = rows(), []
    made.trace(tmp_path)
    for apply in (made.loop.apply, made.apply):
        torch.manual_seed(1)
        with apply(model):
            backward(loss(model(batch)))
        found.append([each.grad.clone() for each in model.parameters()])
        model.zero_grad()
    assert alike(*found)


def test_a_plan_with_measured_times(made: Planned, model: Network, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no step was timed yet"):
        made.refit()
    train(made, model, 3)
    made.trace(tmp_path)
    train(made, model, 1)
    step = made._reporter.recorded  # noqa: SLF001
    assert step is not None
    measured = measured_operations(step, operation_seconds(made.predicted.trace))
    assert made.loop.arena.nbytes == made.loop.schedule.pinned_bytes > 0
    again = made.refit()
    assert made.loop.arena.nbytes == 0
    found = operation_seconds(again.predicted.trace)
    assert measured
    assert {each: found[each] for each in measured} == pytest.approx(measured)
    out = [each for each in step.copies if each.way is Way.OUT]
    whole_s = sum(each.end_s - each.start_s for each in out) - len(out) * again._request.server.link.latency_s  # noqa: SLF001
    rate = sum(len(each.extent) for each in out) / whole_s
    assert again._request.server.link.d2h_bytes_per_s == pytest.approx(rate)  # noqa: SLF001
    train(again, model, 1)
    # The former plan can still be applied.
    train(made, model, 1)


def test_a_drift_is_explained(made: Planned, model: Network, capsys: pytest.CaptureFixture[str]) -> None:
    operations = range(len(made.loop.schedule.captured.operations))
    slow = replace(made._request, seconds=dict.fromkeys(operations, 1.0)).planned()  # noqa: SLF001
    assert planned_s(slow.predicted.trace) > 10
    train(slow, model, 3)
    (line,) = capsys.readouterr().err.splitlines()
    assert "s planned, -" in line
    train(slow, model, 2)
    off, offer = capsys.readouterr().err.splitlines()
    assert off.startswith("vdnnsim: step 4")
    assert off.count(" planned, -") == 3
    assert "plan.refit()" in offer
    again = slow.refit()
    assert planned_s(again.predicted.trace) < 5


def test_an_update_within_the_context_is_not_timed(made: Planned, model: Network, tmp_path: Path) -> None:
    """The last stretch ends where the first optimizer's step begins."""
    trained = copy.deepcopy(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    made.trace(tmp_path)
    begun_s = perf_counter()
    with made.apply(trained):
        backward(loss(trained(rows())))
        optimizer.step()
        updated_s = perf_counter()
        sleep(0.1)
    step = made._reporter.recorded  # noqa: SLF001
    assert step is not None
    assert step.seconds <= updated_s - begun_s


def test_reports_of_a_gpu(made: Planned, model: Network, tmp_path: Path) -> None:
    """A step of the CPU, given a peak of 1 GiB where kilobytes were planned."""
    cached = replace(made._request, memory_model=chosen_memory_model("pytorch")).planned()  # noqa: SLF001
    reporter = cached._reporter  # noqa: SLF001
    cached.trace(tmp_path / "first")
    train(cached, model, 1)
    assert reporter.recorded is not None
    levels = tuple(Level(number, 0.0, 2**20) for number in (0, 1))
    step = replace(reporter.recorded, device="H100", peak_bytes=2**30, memory=levels, snapshot=b"a snapshot")
    line = reporter._line(step)  # noqa: SLF001
    assert "; peak 1.00 GiB, " in line
    assert line.endswith("another card, NVIDIA GeForce RTX 4090")
    time, memory, _ = reporter._explained(step)  # noqa: SLF001
    assert "time" in time
    assert "before forward of " in memory
    reporter._write(step, tmp_path / "second")  # noqa: SLF001
    written = {each.name for each in (tmp_path / "second").iterdir()}
    assert written == {"step.json", "trace.json", "snapshot_predicted.pickle", "snapshot_happened.pickle"}
    assert (tmp_path / "second/snapshot_happened.pickle").read_bytes() == b"a snapshot"
    events = json.loads((tmp_path / "second/trace.json").read_text())["traceEvents"]
    counters = [each["args"] for each in events if each["ph"] == "C" and each["pid"] == 1]
    assert counters == [{"total": 2**20}] * 2
    peak_bytes = cached.predicted.metrics.allocated_bytes
    # The host decides, as of all small models.
    promised, _ = reporter._compared(step)  # noqa: SLF001
    assert promised.planned > planned_s(cached.predicted.trace)
    step = replace(step, seconds=promised.planned, peak_bytes=peak_bytes)
    assert list(reporter._explained(step)) == ["step 1: as planned, within 5%"]  # noqa: SLF001


@pytest.mark.parametrize(("width", "samples", "decides"), [(16, 4, True), (2048, 8192, False)])
def test_a_plan_says_where_the_host_decides(width: int, samples: int, decides: bool) -> None:  # noqa: FBT001
    """A kernel of 2048 x 2048 x 8192 multiplies 69 GFLOP: most of a millisecond, against microseconds to issue it."""
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))
    inputs = torch.zeros(samples, width)
    made = plan(model, inputs, hardware="rtx_4090", policy="save_on_cpu", loss=loss, optimizer="sgd")
    assert ("the host decides" in str(made)) is decides
    hooked_s, host_s = host_seconds(made.predicted.trace, made.loop.schedule, made._request.server.host)  # noqa: SLF001
    assert 0 < hooked_s < host_s
    assert (host_s > made.predicted.metrics.iteration_s) is decides
    # A plan that does nothing has hooks under a limit of memory alone, and its bound is that of the GPU.
    for memory, has_hooks in ((None, False), ("2 GiB", True)):
        idle = plan(model, inputs, hardware="rtx_4090", memory=memory, loss=loss, optimizer="sgd")
        assert idle.loop.schedule.is_idle
        assert ("the host decides" in str(idle)) is (has_hooks and decides)
        assert ("100.0% of the speed" in str(idle)) is not (has_hooks and decides)
        as_fast = "without hooks: as fast as" if has_hooks and decides else "as fast as"
        assert any(line.startswith(as_fast) for line in str(idle).splitlines())
    # Without dispatch times nothing is known of the host.
    unknown = replace(made._request.server.host, dispatch_forward_s=0.0)  # noqa: SLF001
    assert host_seconds(made.predicted.trace, made.loop.schedule, unknown) == (0.0, 0.0)
