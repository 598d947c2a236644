"""Storages of a capture, which end with their tensors also after they were numbered anew."""

import torch

from calibration.capture.storages import StorageTable
from vdnnsim.dnn.step import Access, BufferKind


def test_storages_that_became_parts_of_others_end_without_a_trace() -> None:
    """The first becomes part of the second; the third is then the second, and ends at the second operation."""
    table = StorageTable()
    tensors = [torch.zeros(size) for size in (1, 2, 3)]
    for tensor in tensors:
        table.view(tensor, table.add(tensor, "x", BufferKind.FEATURE_MAP))
    numbers, _ = table.renumber({0: (1, 1, Access.READ)})
    assert numbers == {0: 0, 1: 0, 2: 1}
    table.issued = 2
    del tensor
    tensors.pop()
    assert [each.freed_after for each in table.lives] == [None, 1]
    tensors.clear()
    assert [each.freed_after for each in table.lives] == [1, 1]
