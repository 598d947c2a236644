"""Kernels that the host computes: results, order in their stream, and refusals."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch

from tests.host_arithmetic.host_work import HostWork, host_view
from tests.host_arithmetic.operators import arithmetic_of_the_host
from vdnnsim.errors import DeviceError, ExecutionRefused

pytestmark = pytest.mark.pretend

LATE_CYCLES = 10**8
"""Some 50 ms at the clocks of a GPU, longer than any kernel here."""


@pytest.fixture
def _computing() -> Iterator[None]:
    with arithmetic_of_the_host():
        yield


def on_gpu(*numbers: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(numbers).cuda().to(dtype)


def test_without_the_host_a_kernel_writes_nothing() -> None:
    """Fresh memory of the GPU is zero, and so is what a sum leaves in it."""
    ones = torch.tensor([1.0, 2.0]).cuda()
    assert (ones + ones).tolist() == [0.0, 0.0]


@pytest.mark.usefixtures("_computing")
def test_sums_products_views_and_copies() -> None:
    """(1, 2) + (1, 2) = (2, 4), of which 1 x 2 + 2 x 4 = 10 is a product with (1, 2)."""
    numbers = on_gpu(1, 2)
    twice = numbers + numbers
    assert twice.tolist() == [2.0, 4.0]
    assert torch.dot(numbers, twice).item() == 10
    assert torch.equal(twice, 2 * numbers)
    assert not torch.equal(twice, numbers)
    # The second column of ((0, 1), (2, 3)) doubled, then the sums of columns: (2, 8).
    table = on_gpu(0, 1, 2, 3).view(2, 2)
    table[:, 1].mul_(2)
    sums = torch.empty(2, device="cuda")
    torch.sum(table, 0, out=sums)
    assert sums.tolist() == [2.0, 8.0]
    # The mean of 2048 and 2050 is 2049, which the 11 bits of float16 cannot hold and CUDA keeps in float32.
    images = on_gpu(2048, 2050, dtype=torch.float16).view(2, 1)
    gamma, beta = on_gpu(1, dtype=torch.float16), on_gpu(0, dtype=torch.float16)
    _, mean, _ = torch.native_batch_norm(images, gamma, beta, None, None, training=True, momentum=0.1, eps=1e-5)
    assert mean.dtype == torch.float32
    assert mean.item() == 2049
    # ((0, 1), (2, 3)) turned over and narrowed on the way to the host, and back.
    table = on_gpu(0, 1, 2, 3).view(2, 2)
    there = table.t().to("cpu", torch.float16)
    assert there.tolist() == [[0, 2], [1, 3]]
    table.copy_(there.t().to(torch.float64))
    assert table.flatten().tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("_computing")
def test_gradients_of_a_small_network_are_those_of_the_cpu() -> None:
    """Convolution, rectifier, pooling, product, loss: forward and backward by PyTorch's code for either device."""
    torch.manual_seed(1)
    layers = (torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten())
    network = torch.nn.Sequential(*layers, torch.nn.Linear(36, 5))
    images, classes = torch.rand(2, 3, 8, 8), torch.tensor([1, 4])

    def gradients(device: str) -> list[torch.Tensor]:
        network.to(device).zero_grad()
        torch.nn.functional.cross_entropy(network(images.to(device)), classes.to(device)).backward()  # type: ignore[no-untyped-call]
        return [each.grad.cpu().clone() for each in network.parameters() if each.grad is not None]

    on_cpu = gradients("cpu")
    assert len(on_cpu) == 4
    for found, expected in zip(gradients("cuda"), on_cpu, strict=True):
        assert torch.allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.usefixtures("_computing")
def test_a_kernel_reads_what_has_arrived_when_it_runs(*, waits: bool) -> None:
    """A copy of 7 begins late on a stream of its own: without a wait the kernel on the other one doubles the 1."""
    source = torch.tensor([7.0]).pin_memory()
    target = on_gpu(1)
    torch.cuda.synchronize()
    copying = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(copying):
        torch.cuda._sleep(LATE_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001  # as PyTorch's own tests
        target.copy_(source, non_blocking=True)
    if waits:
        torch.cuda.current_stream().wait_stream(copying)
    assert (target * 2).item() == (14 if waits else 2)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.usefixtures("_computing")
def test_a_copy_takes_what_a_kernel_has_written_when_it_runs(*, waits: bool) -> None:
    """The kernel that writes 5 over the 1 is late: a copy that does not wait for it takes the 1."""
    copied = torch.zeros(1).pin_memory()
    numbers = on_gpu(1)
    torch.cuda.synchronize()
    copying = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda._sleep(LATE_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001  # as PyTorch's own tests
    numbers.add_(4)
    if waits:
        copying.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copying):
        copied.copy_(numbers, non_blocking=True)
    torch.cuda.synchronize()
    assert copied.item() == (5 if waits else 1)


@pytest.mark.usefixtures("_computing")
def test_random_numbers_and_shapes_that_values_tell_are_refused_by_name() -> None:
    with pytest.raises(ExecutionRefused, match=r"aten.randn.*random"):
        torch.randn(3, device="cuda")
    with pytest.raises(ExecutionRefused, match=r"aten.nonzero.*shape"):
        on_gpu(1, 0).nonzero()


@pytest.mark.usefixtures("_computing")
def test_failure_in_a_stream_is_raised_at_the_next_operator() -> None:
    """A class that is none: nll_loss of the CPU refuses it while it runs."""
    torch.ops.aten.nll_loss_forward(torch.zeros(1, 2, device="cuda"), torch.tensor([5]).cuda(), None, 1, -100)
    torch.cuda.synchronize()
    with pytest.raises(ExecutionRefused, match=r"cannot compute aten\.nll_loss_forward"):
        on_gpu(1)


def test_copies_that_move_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VDNNSIM_PRETEND_COPIES", "now")
    with pytest.raises(DeviceError, match="--copies delayed"), arithmetic_of_the_host():
        pass


def test_a_copy_waits_for_work_of_the_host_that_another_thread_runs() -> None:
    """A thread that synchronizes runs the work; meanwhile this one asks, and must not let the copy behind it begin.

    The work writes 1 where 0 was: a copy that is ahead of it has 0.
    """
    source, target = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    has_begun, may_write = Event(), Event()

    def write() -> None:
        has_begun.set()
        assert may_write.wait(30)
        host_view(source).fill_(1)

    work = HostWork()
    # So that no call of this thread finds the work due.
    torch.cuda._sleep(LATE_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001
    work.put("write", write)
    target.copy_(source)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(torch.cuda.synchronize)
        assert has_begun.wait(30)
        assert not torch.cuda.current_stream().query()
        may_write.set()
        waiting.result(30)
    work.raise_failure()
    assert torch.cuda.current_stream().query()
    assert target.item() == 1
