"""The memory model of a scenario, by name or with settings of PyTorch's allocator."""

import pytest

from tests.refusals import refusal
from vdnnsim.errors import InputError, ScenarioError
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.memory.choices import MemoryChoice, MemoryModel, memory_choice, read_memory_model
from vdnnsim.memory.settings import AllocatorSettings

GROWING = AllocatorSettings(expandable_segments=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("best_fit", MemoryModel.BEST_FIT),
        ("pytorch", MemoryModel.PYTORCH),
        ("pytorch()", MemoryModel.PYTORCH),
        ("pytorch(expandable_segments:True)", GROWING),
        ({"pytorch": {}}, MemoryModel.PYTORCH),
        ({"pytorch": {"expandable_segments": False}}, MemoryModel.PYTORCH),
        ({"pytorch": {"expandable_segments": True}}, GROWING),
        ({"pytorch": {"max_split_size_mb": 128}}, AllocatorSettings(max_split_size_mb=128)),
        (
            {"pytorch": {"garbage_collection_threshold": 0.8, "roundup_power2_divisions": ["256:1", ">:4"]}},
            AllocatorSettings(garbage_collection_threshold=0.8, roundup_power2_divisions=(("256", 1), (">", 4))),
        ),
    ],
    ids=str,
)
def test_a_memory_model_is_named_or_set(value: YamlValue, expected: MemoryChoice) -> None:
    choice = read_memory_model(Entry("s.yaml", "memory_model", value, ScenarioError))
    assert choice == expected
    assert memory_choice(choice.value) == choice


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (7, "s.yaml: memory_model: found 7"),
        ("pytorch_expandable", "s.yaml: memory_model: 'pytorch_expandable' is not a memory model; did you mean 'py"),
        ({"mxnet": {}}, "s.yaml: memory_model: 'mxnet' is not a key"),
        ({"pytorch": 3}, "s.yaml: memory_model.pytorch: found 3"),
        ({"pytorch": {"max_split_size_mb": 5}}, "s.yaml: memory_model.pytorch: max_split_size_mb: found '5'"),
        ("pytorch(max_split_size_mb:5)", "s.yaml: memory_model: max_split_size_mb: found '5'"),
    ],
)
def test_an_unknown_memory_model_is_refused(value: YamlValue, message: str) -> None:
    entry = Entry("s.yaml", "memory_model", value, ScenarioError)
    assert refusal(InputError, read_memory_model, entry).startswith(message)
