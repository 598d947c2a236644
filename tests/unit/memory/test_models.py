from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.models import place
from vdnnsim.memory.requests import Overflow, Placed, Request

# 40 and 20 B, the 40 go, 60 come: 80 in use at most.
REQUESTS = [Request(0, 40), Request(1, 20), Request(0, None), Request(2, 60), Request(1, None), Request(2, None)]


def test_each_model_answers_in_its_own_way() -> None:
    """100 B. `ideal` knows no addresses; `best_fit` leaves 40 B on either side of 1; `planned` lays 1 at the bottom.

    The others take no less than 2 MiB from a GPU.
    """
    answers = {model: place(REQUESTS, model, capacity_bytes=100, granule_bytes=1) for model in MemoryModel}

    assert answers == {
        MemoryModel.IDEAL: Placed((None,) * 6, (40, 20, -40, 60, -20, -60), 80),
        MemoryModel.BEST_FIT: Overflow(3, (1,), 80, 40),
        MemoryModel.PLANNED: Placed((20, 0, 20, 20, 0, 20), (40, 20, -40, 60, -20, -60), 80),
        MemoryModel.PYTORCH: Overflow(0, (), 100, 0),
        MemoryModel.CUDA_MALLOC: Overflow(0, (), 100, 0),
        MemoryModel.MXNET: Overflow(0, (), 100, 0),
        MemoryModel.TENSORFLOW: Overflow(0, (), 100, 0),
        MemoryModel.CUDA_VMM: Overflow(0, (), 100, 100),
    }


def test_every_model_rounds_to_the_granule() -> None:
    """Granule 512: one byte takes 512; mapped by itself, it takes a block of 2 MiB."""
    answers = {model: place([Request(0, 1)], model, capacity_bytes=2**21, granule_bytes=512) for model in MemoryModel}
    deltas = {model: answer.deltas for model, answer in answers.items() if isinstance(answer, Placed)}

    assert deltas == {**dict.fromkeys(MemoryModel, (512,)), MemoryModel.CUDA_VMM: (2**21,)}
