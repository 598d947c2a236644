"""Steps that left their plan under a memory limit: saved tensors on the host, with the same bits."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calibration.apply import unplanned_offload
from calibration.apply.reservation import PlannedMemory, Reservation, excess_message
from calibration.apply.saved_storage import SavedTensor
from calibration.apply.unplanned_offload import GpuBudget, HostTensor, most_kept
from tests.apply.training import alike, gradients, requested
from vdnnsim.errors import PlanWarning
from vdnnsim.units import GIB

CUDA = torch.device("cuda", 0)


def model() -> nn.Module:
    torch.manual_seed(0)
    parts = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GELU(), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(128, 4))


def test_a_step_that_left_its_plan_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of another size: weights and images stay, inputs of five layers and statistics are on the host."""
    batch, kept = torch.randn(4, 3, 8, 8), []

    def packed(_: Reservation, tensor: Tensor, trained: nn.Module) -> SavedTensor:
        budget = GpuBudget(tensor.device, 100, 0)
        kept.append(budget.save(tensor, trained))
        return kept[-1]

    trained = model()
    expected = gradients(trained, batch)
    made = requested(trained, torch.randn(8, 3, 8, 8), "save_on_cpu").planned()
    monkeypatch.setattr(Reservation, "save", packed)
    monkeypatch.setattr(unplanned_offload, "allocated_bytes", lambda _: 1000)
    with pytest.warns(UserWarning, match="was left"):
        assert alike(expected, gradients(trained, batch, applied=made.apply))
    assert sum(isinstance(each, HostTensor) for each in kept) >= 5
    assert any(type(each) is SavedTensor for each in kept)


def test_tensors_on_the_host_keep_their_layout_and_are_not_written() -> None:
    """A view of every second column, from the third on."""
    whole = torch.arange(24.0).view(4, 6)
    part = whole[:, 2::2]
    expected = part.clone()
    packed = HostTensor(part)
    found = packed.unpack()
    assert (found.shape, found.stride(), found.storage_offset()) == (part.shape, part.stride(), 2)
    assert torch.equal(found, expected)
    assert found.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()
    # A written tensor is refused.
    tensor = torch.ones(3)
    packed = HostTensor(tensor)
    tensor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        packed.unpack()


def test_a_third_of_the_free_memory_may_be_kept() -> None:
    """Of 100 bytes 30 were allocated and 10 are for gradients: 20 of 60."""
    assert most_kept(100, 30, 10) == 50
    assert most_kept(100, 95, 10) == 95


def test_tensors_within_the_budget_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to (100 - 10 - 24) / 3 = 22 bytes more than 10; a layer of 2 x 2 and 2 is 24 bytes."""
    level = 32
    monkeypatch.setattr(unplanned_offload, "allocated_bytes", lambda _: level)
    layer = nn.Linear(2, 2)
    tensor = layer(torch.ones(1, 2))
    budget = GpuBudget(torch.device("cpu"), 100, 10)
    assert type(budget.save(tensor, layer)) is SavedTensor
    level = 33
    assert isinstance(budget.save(tensor, layer), HostTensor)
    assert type(budget.save(layer.weight.t(), layer)) is SavedTensor


@pytest.mark.parametrize(
    ("held", "was_left", "words"),
    [
        (0, False, ["found no room"]),
        (GIB, False, ["1.00 GiB are of tensors", "found no room"]),
        (2 * GIB, False, ["2.00 GiB are of tensors"]),
        (2 * GIB, True, ["2.00 GiB are of tensors", "a step left the plan"]),
    ],
)
def test_the_warning_names_causes(held: int, was_left: bool, words: list[str]) -> None:  # noqa: FBT001
    said = excess_message(10 * GIB, 2 * GIB, held, was_left=was_left, has_gaps=held < 2 * GIB)
    assert "12.0 GiB, 2.00 GiB more than the 10.0 GiB" in said
    assert said.count(", and ") == len(words) - 1
    assert all(each in said for each in words)


class Statistics:
    """PyTorch's statistics of a GPU that does not exist."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allocated = self.reserved = self.most = 0
        monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: self._all())
        monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda _: self.most)

    def _all(self) -> dict[str, Any]:
        return {
            "allocated_bytes.all.current": self.allocated,
            "requested_bytes.all.current": self.allocated,
            "reserved_bytes.all.current": self.reserved,
            "reserved_bytes.all.peak": self.most,
        }


def test_a_limit_is_watched_from_step_to_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 bytes: no warning of 12 before the first step, one of 14 after it; 17 at the end are 7 more."""
    counted, layer = Statistics(monkeypatch), nn.Linear(2, 2)
    reservation = Reservation(CUDA, 10, PlannedMemory())
    counted.reserved, counted.most = 8, 12
    reservation.take(layer)
    assert (reservation.beyond_bytes, reservation.is_full_of_gaps) == (2, False)
    counted.reserved = counted.most = 14
    with pytest.warns(PlanWarning, match="4 B more than the 10 B") as said:
        reservation.take(layer)
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reservation.take(layer)
    assert (reservation.beyond_bytes, reservation.is_full_of_gaps) == (4, True)
    counted.most = 17
    assert reservation.end() == 7


def test_a_step_that_left_the_plan_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, layer = Statistics(monkeypatch), nn.Linear(2, 2)
    reservation = Reservation(CUDA, 10, PlannedMemory())
    counted.reserved = counted.most = 8
    reservation.take(layer)
    assert type(reservation.save(torch.ones(3), layer)) is SavedTensor
    counted.most = 14
    with pytest.warns(UserWarning, match="a step left the plan"):
        reservation.take(layer)
    assert not reservation.is_full_of_gaps


def test_without_a_limit_nothing_is_watched() -> None:
    reservation = Reservation(CUDA, None, PlannedMemory())
    reservation.take(nn.Linear(2, 2))
    assert type(reservation.save(torch.ones(3), None)) is SavedTensor
    assert reservation.end() == 0
