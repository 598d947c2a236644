"""A storage that a plan prefetches before autograd saves it for the last time."""

import torch
from torch import nn

from tests.apply.generated.blocks import WIDTH, Cube
from tests.apply.generated.plans import Captured
from tests.apply.generated.trees import batch_of
from tests.apply.models import Function as Of
from tests.apply.training import alike, gradients
from vdnnsim.plans.schedule import Offload, Prefetch, ScheduleStep, Wait


def test_a_storage_prefetched_before_its_last_save_is_kept() -> None:
    """A function saves the square of its input after both of its products, when the plan has prefetched it already.

    The plan gives its slot to the result, of as many bytes, which must not overwrite it.
    """
    torch.manual_seed(0)
    cube = Of(lambda _, each: Cube.apply(each))  # type: ignore[no-untyped-call]
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), cube, nn.Linear(WIDTH, WIDTH))
    captured = Captured(model, narrow=False)
    step = captured.asked.captured
    names = [each.name for each in step.operations[:4]]
    assert names == ["aten.addmm.default", "aten.mul.Tensor", "aten.mul.Tensor", "aten.addmm.default"]
    square, result = (step.tensors[step.operations[at].operands[-1].memory].storage for at in (1, 2))
    steps: list[ScheduleStep] = []
    for at, run in enumerate(captured.runs):
        if at == 3:
            steps.append(Prefetch((square,), run.layer, run.phase, on_demand=False))
        if at == 5:
            steps += [Prefetch((result,), run.layer, run.phase, on_demand=False)]
        steps.append(run)
        if at in (2, 3):
            what = (square, result)[at - 2]
            steps += [Offload((what,), run.layer), Wait((what,))]
    loop = captured.by_steps(steps)
    nbytes = step.storages[result].nbytes
    # 4 samples x 6 x 8 of 4 bytes each, in slices of 512.
    assert (nbytes, loop.schedule.pinned_bytes) == (768, 1024)

    batch = batch_of(4)
    assert alike(gradients(model, batch), gradients(model, batch, applied=loop.apply))
    assert loop.steps[0].departure == ""
    assert loop.schedule.offloaded == {result}
    assert loop.steps[0].offloaded_bytes == loop.steps[0].fetched_bytes == loop.schedule.offloaded_bytes == nbytes
