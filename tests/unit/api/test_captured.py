"""Captures of a notebook, made again for other cards and batches."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import vdnnsim
from tests.refusals import refusal
from vdnnsim.api import Captured
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import CaptureError, ProfileError, StudyError
from vdnnsim.scenario.read import LARGEST_BATCH
from vdnnsim.units import Precision

CAPTURE: Any = vdnnsim.capture
"""Untyped, for wrong arguments."""
TOKENS = torch.zeros(2, 16, 32)


class Attention(nn.Module):
    """Four heads of eight."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.project(x).view(*x.shape[:2], 4, 8).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads)


def attentions(step: CapturedStep) -> set[str]:
    return {each.name.partition("_attention")[0] for each in step.operations if "_scaled_dot_product" in each.name}


FLASH, EFFICIENT, CUDNN = (f"aten._scaled_dot_product_{each}" for each in ("flash", "efficient", "cudnn"))


@pytest.mark.parametrize("batch", [None, 2])
def test_a_step_is_captured_anew_for_the_card_on_which_it_is_simulated(batch: int | None) -> None:
    """In 16 bits a T4, of capability 7.5, has no flash attention, which begins with 8.0 (sdp_utils.cpp).

    An H100 tries cuDNN first; what is known of an RTX 4090 stays the capture itself.
    """
    step = vdnnsim.capture(Attention, TOKENS, precision="amp_float16", batch=batch)
    assert attentions(step) == {FLASH}
    for hardware, device, kernel in (
        ("rtx_4090", "cuda 8.9", FLASH),
        ("t4", "cuda 7.5", EFFICIENT),
        ("h100_sxm", "cuda 9.0", CUDNN),
    ):
        captured = vdnnsim.simulate(step, hardware).result.captured
        assert captured is not None
        assert (captured.base.device, attentions(captured.base)) == (device, {kernel})
        named = vdnnsim.capture(Attention, TOKENS, precision="amp_float16", batch=batch, hardware=hardware)
        assert named == captured.base


def test_machines_have_the_numbers_that_each_has_alone() -> None:
    """Of attention in 16 bits, whose results take another size on an H100."""
    step = vdnnsim.capture(Attention, TOKENS, precision="amp_float16")
    names = ["h100_sxm", "rtx_4090", "t4"]
    ranked = vdnnsim.machines(step, *names).to_pandas().set_index("machine")
    for name in names:
        alone = vdnnsim.simulate(step, name).to_pandas()
        for column in ("iteration_s", "allocated_bytes", "process_bytes"):
            assert ranked[column][name] == alone[column][0]


def test_machines_under_a_policy_have_the_numbers_that_each_has_alone() -> None:
    """As without one: the step of an H100 and of a T4 have other attention than that of an RTX 4090."""
    step = vdnnsim.capture(Attention, TOKENS, precision="amp_float16")
    names = ["h100_sxm", "rtx_4090", "t4"]
    ranked = vdnnsim.machines(step, *names, policy="checkpoint").to_pandas().set_index("machine")
    for name in names:
        alone = vdnnsim.simulate(step, name, policy="checkpoint").to_pandas()
        assert ranked["iteration_s"][name] == alone["iteration_s"][0]


def test_a_copy_of_a_step_can_be_captured_again() -> None:
    """A shallow or a deep one, at another batch."""
    step = vdnnsim.capture(nn.Linear(3, 5), torch.ones(8, 3))
    assert step.at_batch is not None
    for again in (copy.copy(step), copy.deepcopy(step)):
        assert again == step
        assert again.at_batch is not None
        assert again.at_batch(4) == step.at_batch(4)


def test_a_step_without_attention_is_the_same_on_every_card() -> None:
    """Its device alone is another; so it is at another batch of the step for that card."""
    step = vdnnsim.capture(nn.Linear(3, 5), torch.ones(8, 3))
    captured = vdnnsim.simulate(step, "t4").result.captured
    assert captured is not None
    assert captured.base == msgspec.structs.replace(step, device="cuda 7.5")
    assert captured.workload(5).captured.device == "cuda 7.5"


def test_steps_are_equal_by_what_they_hold() -> None:
    """A capture at another batch can be captured again, too; that from a file cannot, and equals it all the same."""
    step = vdnnsim.capture(nn.Linear(3, 5), torch.ones(8, 3))
    assert step.at_batch is not None
    other = step.at_batch(4)
    assert isinstance(other, Captured)
    assert len(repr(other)) < 4000
    assert other != step
    assert other.at_batch is not None
    assert other.at_batch(8) == step
    plain = CapturedStep(**msgspec.structs.asdict(step))
    assert plain == step == plain
    assert step != 8


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"hardware": "t4", "real": True}, CaptureError, "hardware: found with real tensors"),
        ({"hardware": "t5"}, ProfileError, "t5"),
    ],
)
def test_a_card_that_makes_no_sense_is_refused(words: dict[str, Any], error: type, message: str) -> None:
    assert message in refusal(error, vdnnsim.capture, nn.Linear(3, 5), torch.ones(8, 3), **words)


def test_a_function_whose_name_says_nothing_gives_the_name_of_the_class() -> None:
    def make() -> nn.Module:
        return Attention()

    def small() -> nn.Module:
        return Attention()

    names = [vdnnsim.capture(each, TOKENS).model for each in (make, lambda: Attention(), Attention, small)]  # noqa: PLW0108
    assert names == ["Attention", "Attention", "Attention", "small"]


@pytest.mark.parametrize(
    ("model", "lora", "precision"),
    [
        (nn.Linear(64, 64), None, Precision.FLOAT32),
        (nn.Linear(64, 64).bfloat16(), None, Precision.BFLOAT16),
        (nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)).half(), 2, Precision.FLOAT16),
    ],
    ids=str,
)
def test_a_model_in_16_bits_is_said_to_be(model: nn.Module, lora: int | None, precision: Precision) -> None:
    """Where no precision was asked for; adapters of LoRA stay in float32, and are fewer than the rest."""
    step = vdnnsim.capture(model, torch.ones(8, 64), lora=lora)
    assert step.precision is precision
    assert f", {precision.value}, " in str(step)


@pytest.mark.parametrize(("word", "value"), [("parallel", "fsdp=8,sync=last"), ("checkpointing", "some")])
def test_messages_have_the_words_of_python(word: str, value: str) -> None:
    message = refusal(CaptureError, CAPTURE, nn.Linear(3, 5), torch.ones(8, 3), **{word: value})
    assert message.startswith(f"{word}: found")
    assert "--" not in message


@pytest.mark.usefixtures("in_a_fork")
def test_a_model_by_name_is_captured_on_longer_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 4 x 2 looked up for tokens: 8 B a token are what grows, so that far more than 16 fit."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "a_net.py"
    path.write_text("from torch import nn\ndef make():\n    return nn.Embedding(4, 2)\n", encoding="utf-8")
    step = vdnnsim.capture(f"{path}:make", batch=8, tokens=16)
    found = vdnnsim.max_batch(step, "rtx_4090", longest=True)
    assert found.to_pandas()["tokens"][0] > 16
    own = vdnnsim.capture(nn.Embedding(4, 2), torch.zeros(8, 16, dtype=torch.int64))
    assert "cannot be captured on sequences" in refusal(StudyError, vdnnsim.max_batch, own, "rtx_4090", longest=True)


def test_a_rank_is_said_to_be_one() -> None:
    step = vdnnsim.capture(nn.Linear(3, 5), torch.ones(8, 3), parallel="ddp=8")
    assert " as one of 8 ranks (ddp=8) on " in str(vdnnsim.simulate(step, "h100_x8")).replace("\n", " ")


def test_a_step_of_a_pipeline_is_simulated_with_the_others(tmp_path: Path) -> None:
    """A rank for each stage; both take a step as long, for they wait for each other. A file holds one of them."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    step = vdnnsim.capture(model, torch.ones(4, 8), parallel="pp=2", accumulate=2)
    found = vdnnsim.simulate(step, "h100_x8")
    first, second = found.rows
    assert first.metrics.iteration_s == second.metrics.iteration_s
    text = " ".join(str(found).split())
    assert " as 2 ranks (pp=2) on 2 x " in text
    assert "samples/s of 2 ranks." in text
    assert vdnnsim.machines(step, "h100_x8").to_pandas()["iteration_s"][0] == first.metrics.iteration_s
    found = vdnnsim.max_batch(step, hardware="h100_x8").to_pandas()
    assert found["batch_size"][0] == LARGEST_BATCH // 2
    step.write(tmp_path / "first.step.json")
    alone = refusal(CaptureError, vdnnsim.simulate, tmp_path / "first.step.json", "h100_x8")
    assert alone.startswith("step: is rank 0 of pp=2, expected ")
