"""The memory model and the pinning of host memory, as scenarios choose them."""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Final, TypeAlias

from vdnnsim.errors import InputError
from vdnnsim.files.messages import not_one_of
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings, parse_settings


class MemoryModel(Enum):
    """How the memory pool of the GPU places buffers.

    `ideal` counts bytes rounded up to the granule and never fragments, as in the papers; the default.
    `best_fit` places each request online in the smallest free piece, as cnmem does for vDNN.
    `planned` assigns addresses ahead of time by the lifetimes of a static plan.
    `pytorch` places online as PyTorch's CUDA caching allocator does, in cached segments; it has settings.
    `cuda_malloc` makes every buffer an allocation of its own, as Caffe does: the driver allocates blocks of 2 MiB.
    `mxnet` plans which buffers share a storage as MXNet does, and allocates every storage by itself.
    `tensorflow` places online as TensorFlow's BFC allocator does, in cached regions that double in size.
    `cuda_vmm` maps blocks of 2 MiB at the addresses of each buffer, so that parts of it can be released.
    """

    IDEAL = "ideal"
    BEST_FIT = "best_fit"
    PLANNED = "planned"
    PYTORCH = "pytorch"
    CUDA_MALLOC = "cuda_malloc"
    MXNET = "mxnet"
    TENSORFLOW = "tensorflow"
    CUDA_VMM = "cuda_vmm"


MemoryChoice: TypeAlias = MemoryModel | AllocatorSettings
"""A memory model, or PyTorch's with settings that are not its defaults."""

_SETTABLE: Final = MemoryModel.PYTORCH.value


def settings_of(model: MemoryChoice) -> AllocatorSettings | None:
    """Return the settings of PyTorch's allocator; None for another memory model."""
    if isinstance(model, AllocatorSettings):
        return model
    return DEFAULTS if model is MemoryModel.PYTORCH else None


def is_of_pytorch(model: MemoryChoice) -> bool:
    """Whether a memory model is PyTorch's, and so the other memory of the process (`vdnnsim.memory.process`)."""
    return settings_of(model) is not None


def is_of_plain_loop(model: MemoryChoice) -> bool:
    """Whether a memory model is PyTorch's without memory reserved ahead, as `apply` reserves it."""
    settings = settings_of(model)
    return settings is not None and not settings.preallocated


def preallocated(model: MemoryChoice) -> MemoryChoice:
    """Return PyTorch's memory model with memory reserved ahead, unless it limits splits; others unchanged."""
    settings = settings_of(model)
    return replace(settings, preallocated=True) if settings and settings.max_split_size_mb is None else model


def memory_choice(text: str) -> MemoryChoice:
    """Return the memory model that a text names: `best_fit`, or `pytorch(expandable_segments:True)`.

    Raises:
        InputError: there is none of this name, or a setting is wrong.
    """
    if text.startswith(f"{_SETTABLE}(") and text.endswith(")"):
        return allocator(text[len(_SETTABLE) + 1 : -1])
    names = [each.value for each in MemoryModel]
    if text not in names:
        raise InputError(not_one_of(text, names, "a memory model"))
    return MemoryModel(text)


def allocator(settings: str) -> MemoryChoice:
    """Return PyTorch's allocator with settings as in PYTORCH_ALLOC_CONF."""
    chosen = parse_settings(settings)
    return chosen if chosen.words else MemoryModel.PYTORCH


def read_memory_model(entry: Entry) -> MemoryChoice:
    """Return the memory model that an entry names, or states as `{pytorch: {expandable_segments: true}}`."""
    value = entry.value
    if isinstance(value, dict):
        return _with_settings(entry.members((_SETTABLE,))[_SETTABLE])
    if not isinstance(value, str):
        raise entry.expected(f"a memory model: {', '.join(each.value for each in MemoryModel)}")
    return _chosen(entry, memory_choice, value)


def _word(value: YamlValue) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)


def _with_settings(entry: Entry) -> MemoryChoice:
    settings = entry.named_members("settings of the allocator")
    return _chosen(entry, allocator, ",".join(f"{name}:{_word(each.value)}" for name, each in settings.items()))


def _chosen(entry: Entry, read: Callable[[str], MemoryChoice], text: str) -> MemoryChoice:
    try:
        return read(text)
    except InputError as failure:
        raise entry.wrong(str(failure)) from None


class PinnedMemory(Enum):
    """When host memory for offloaded maps is pinned.

    `arena` pins one region before the first iteration, at no cost to the iteration; the default, since the overheads
    that the vDNN paper reports allow nothing else. `per_offload` calls cudaMallocHost at every offload, as the paper's
    text has it (III-B), which takes host time each time.
    """

    ARENA = "arena"
    PER_OFFLOAD = "per_offload"
