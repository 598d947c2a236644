"""Workspaces of cuBLAS in the plan of the captured chain, whose `fc` is a product forward and two backward."""

import msgspec

from tests.captured_steps import chain, simulator
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.process import CUBLAS_BYTES
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.device_requests import Asked, device_requests
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.repetition import cublas_bytes, first_products, repeated, resident_buffers, with_cublas_workspaces
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.units import GIB


def plan(step: CapturedStep) -> TrainingPlan:
    return PyTorch().plan(simulator(step).setting())


def workspaces(of: TrainingPlan) -> list[tuple[str, int]]:
    return [(each.name, each.nbytes) for each in of.buffers if "cuBLAS" in each.name]


def test_forward_and_backward_on_a_gpu_each_hold_a_workspace() -> None:
    held = with_cublas_workspaces(plan(chain()))
    check_plan(held)
    assert workspaces(held) == [
        ("workspace of cuBLAS for forward", CUBLAS_BYTES),
        ("workspace of cuBLAS for backward", CUBLAS_BYTES),
    ]
    assert {held.buffers[each].name for each in resident_buffers(held)} >= {name for name, _ in workspaces(held)}
    # Cpu captures and other memory models have no workspace.
    on_cpu = msgspec.structs.replace(chain(), device="cpu")
    assert with_cublas_workspaces(plan(on_cpu)) == plan(on_cpu)
    assert cublas_bytes(CapturedWorkload.of(on_cpu), 512) == 0
    (ready,) = simulator(chain(), MemoryModel.IDEAL).ready([plan(chain())], "pytorch(p)")
    assert workspaces(ready) == []
    # Two of 8,519,680 B each, which are whole granules of 512 B.
    machine = simulator(chain())
    roomy = msgspec.structs.replace(chain(), device="cpu")
    without = simulator(roomy).setting().limits.device_bytes
    assert machine.setting().limits.device_bytes == max(0, without - 2 * CUBLAS_BYTES)


def test_the_first_iteration_allocates_them_at_the_first_product_and_the_last_frees_them() -> None:
    """Of two iterations the second asks for neither; weights are there before anything else."""
    held = with_cublas_workspaces(plan(chain()))
    twice = repeated(held, device_requests(held, MemoryModel.PYTORCH, 512, Pieces(held)), 2)
    asked = [each for iteration in twice for each in iteration]
    numbers = first_products(held)

    def where(key: int) -> list[int]:
        return [at for at, each in enumerate(asked) if each.request.key == key]

    forward, backward = numbers
    taken, given_back = where(forward)
    weights = next(at for at, each in enumerate(asked) if held.buffers[each.request.key].kind is BufferKind.WEIGHTS)
    assert weights < taken < where(backward)[0] < given_back
    assert asked[given_back] == Asked(asked[given_back].operation, asked[given_back].request._replace(nbytes=None))
    before = {held.buffers[each.request.key].name for each in asked[:taken]}
    assert "conv" in before
    assert "gradient of loss" not in before


def test_a_placement_shows_the_third_iteration() -> None:
    """Every operation of the plan that changes memory has its change, once."""
    machine = simulator(chain())
    (ready,) = machine.ready([plan(chain())], "pytorch(p)")
    placed = machine.place_unlimited(ready)
    once = device_requests(ready, MemoryModel.PYTORCH, 512, Pieces(ready))
    assert sorted(placed.changes) == [each.operation for each in once]
    assert sum(each.delta_bytes for each in placed.changes.values()) == 0
    assert 2 * CUBLAS_BYTES < placed.pool_bytes < GIB


def test_only_a_device_with_a_version_has_a_compute_capability() -> None:
    devices = ("cuda 9.0", "cuda", "cuda x.y", "cpu")
    found = [msgspec.structs.replace(chain(), device=each).compute_capability for each in devices]
    assert found == [(9, 0), None, None, None]
