"""Models of transformers, which read values, in live loops on a pretended GPU."""

from collections.abc import Iterator
from contextlib import nullcontext
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn

from calibration.pretend.inside.host_reads import Reads
from vdnnsim.api.planning import plan

pytestmark = pytest.mark.pretend


@pytest.fixture(scope="module", autouse=True)
def zeros() -> Iterator[None]:
    """Read zeros, as under `vdnnsim pretend`: then a mask hides something, as one here does."""
    reads = Reads()
    yield
    reads._library._destroy()  # type: ignore[no-untyped-call]  # noqa: SLF001  # has no public form


def texts(length: int, padding: int) -> dict[str, torch.Tensor]:
    mask = (torch.arange(length) < length - padding).long().expand(4, -1)
    words = torch.randint(128, (4, length))
    return {name: each.cuda() for name, each in {"input_ids": words, "attention_mask": mask, "labels": words}.items()}


def bert(library: Any, attention: str) -> nn.Module:  # noqa: ANN401
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    model: nn.Module = library.BertForMaskedLM(
        library.BertConfig(vocab_size=128, attn_implementation=attention, **sizes)
    )
    return model


def gpt2(library: Any, attention: str) -> nn.Module:  # noqa: ANN401
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    model: nn.Module = library.GPT2LMHeadModel(
        library.GPT2Config(vocab_size=128, attn_implementation=attention, **sizes)
    )
    return model


@pytest.mark.parametrize(
    ("make", "attention", "narrow"), [(bert, "sdpa", True), (gpt2, "sdpa", False), (bert, "eager", False)]
)
def test_a_loop_of_transformers(make: Any, attention: str, *, narrow: bool) -> None:  # noqa: ANN401
    """It follows its plan with any padding; a sequence of another length departs, and the next one does not.

    Accelerate, and so the library's Trainer, enters autocast within forward, by an object made before the capture.
    """
    library = pytest.importorskip("transformers")
    model = make(library, attention).cuda()
    if narrow:
        model.forward = MethodType(torch.autocast("cuda", torch.bfloat16)(type(model).forward), model)
    chosen: dict[str, Any] = {"hardware": "rtx_4090", "policy": "save_on_cpu", "optimizer": "sgd"}
    made = plan(model, texts(32, 4), loss=lambda output: output.loss, **chosen)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    left = []
    for length, padding in ((32, 4), (32, 1), (24, 4), (32, 8)):
        batch = texts(length, padding)
        with made.apply(model) as log, nullcontext() if length == 32 else pytest.warns(UserWarning, match="was left"):
            model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        left.append(log.departure)
    assert [each.partition(",")[0] for each in left] == ["", "", "save 0 is int64 [4", ""]
