"""Lines that are printed to copy run as they are, here on the CPU, and compute what the plain step does."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from calibration.capture.losses import AssumedLoss
from calibration.capture.program_text import text_of_request
from calibration.capture.request import Request
from calibration.capture.request_capture import captured_together
from vdnnsim.analysis.answer import Change, Way
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.api.scenarios import scenario_of_step
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep, ProgramText
from vdnnsim.dnn.step import Module
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.dnn.workload import Mode
from vdnnsim.report.tables.changed_loops import how_to
from vdnnsim.report.tables.training_script import script_begin
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.units import Precision

_FILE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, scale):
        return x + self.outer(self.inner(x).relu()) * scale

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
        self.blocks = nn.ModuleList(Block() for _ in range(7))

    def forward(self, ids):
        x = self.embed(ids)
        for each in self.blocks:
            x = each(x, 0.5)
        return self.head(x)

class WithLoss(Net):
    def forward(self, ids, labels):
        return {"loss": nn.functional.cross_entropy(super().forward(ids).float().flatten(0, -2), labels.flatten())}

def inputs(batch, tokens):
    ids = torch.arange(batch * tokens).view(batch, tokens) % 11
    return {"ids": ids, "labels": ids}

class Pair(Net):
    def forward(self, ids, scale):
        return super().forward(ids) * scale, ids

def pair(batch, tokens):
    return inputs(batch, tokens)["ids"], torch.ones(batch, 1, 1)

def Images():
    return nn.Conv2d(3, 4, 3)

class Stages(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        narrow, wide = ([Wide(width) for _ in range(4)] for width in (8, 16))
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(16, 11)
        self.stages = nn.Sequential(*narrow, nn.Linear(8, 16), *wide)

    def forward(self, ids):
        return self.head(self.stages(self.embed(ids)))

class Mixed(Stages):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList(self.stages)

    def forward(self, ids):
        x = self.embed(ids)
        for each in self.stages:
            x = each(x)
        return self.head(x)

class Skips(Net):
    def forward(self, ids):
        x, skips = self.embed(ids), []
        for each in self.blocks[:3]:
            x = each(x, 0.5)
            skips.append(x)
        for each in self.blocks[3:6]:
            x = each(x + skips.pop(), 0.5)
        return self.head(x)

class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + self.inner(x).relu()

whole = Net()
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "printed_net.py").write_text(_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def captured(**words: Any) -> CapturedStep:  # noqa: ANN401 - of a request
    asked: dict[str, Any] = {"model": "printed_net.py:Net", "batch_size": 4, "tokens": 6, "optimizer": "sgd"} | words
    sys.modules.pop("printed_net", None)
    (step,) = captured_together((Request(**asked),))
    return step


def result_of(step: CapturedStep) -> ScenarioResult:
    return run_scenario(scenario_of_step(step, "rtx_4090", "pytorch").scenario)


def way(result: ScenarioResult, **words: Any) -> Way:  # noqa: ANN401 - of a way
    asked: dict[str, Any] = {"change": Change.POLICY, "policy": "pytorch(p)", "batch_size": result.workload.part_size}
    return Way(hardware="rtx_4090", memory_bytes=2**30, **(asked | words))


def run(*lines: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Run lines one after the other on the CPU; return their names, and the weights by name."""
    sys.modules.pop("printed_net", None)
    names: dict[str, Any] = {}
    for each in lines:
        exec(each.replace('"cuda"', '"cpu"'), names)  # noqa: S102 - what is printed
    return names, dict(names["model"].named_parameters())


HALVES = {"change": Change.MICRO_BATCHES, "batch_size": 2, "rounds": 2}
CHECKPOINTED = HALVES | {"policy": "checkpoint(p)"}
WAYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"loop": Loop(optimizer="sgd_fused", loss_chunks=4, checkpointing="full")}),
    ({}, {"loop": Loop(loss_chunks=4), "policy": "checkpoint(p)", "is_applied": True}),
    ({}, {"change": Change.MICRO_BATCHES, "policy": "checkpoint(p)", "batch_size": 1, "rounds": 4}),
    ({"model": "printed_net.py:Stages"}, CHECKPOINTED),
    ({"model": "printed_net.py:whole"}, {"loop": Loop(in_backward=True)}),
    ({"accumulate": 2}, {"loop": Loop(param_groups=3), "rounds": 2}),
    ({"model": "printed_net.py:WithLoss", "inputs": "printed_net.py:inputs"}, HALVES),
    ({"model": "printed_net.py:Pair", "inputs": "printed_net.py:pair"}, HALVES),
]


@pytest.mark.parametrize(("asked", "words"), WAYS)
def test_a_step_of_a_way_is_the_plain_step(asked: dict[str, Any], words: dict[str, Any]) -> None:
    """The same weights after the step, but for the order of sums; the weights have moved."""
    result = result_of(captured(**asked))
    begin, plain = script_begin(result), way(result, change=Change.BATCH, rounds=words.get("rounds", 1))
    _, before = run(begin)
    _, expected = run(begin, how_to(result, msgspec.structs.replace(plain, rounds=result.workload.rounds)))
    _, found = run(begin, how_to(result, way(result, **words)))
    assert not all(torch.equal(before[name], expected[name]) for name in expected)
    for name, weights in expected.items():
        torch.testing.assert_close(found[name], weights)


def test_the_captured_model_is_checkpointed_as_it_was() -> None:
    """Each of the seven blocks runs twice, in forward and in backward; of some of them the user knows which."""
    begin = script_begin(result := result_of(captured(checkpointing="full")))
    runs = "from printed_net import Block\nforward, ran = Block.forward, []\ndef counted(*given):\n"
    runs += "    ran.append(1)\n    return forward(*given)\nBlock.forward = counted\n"
    names, _ = run(
        runs + begin, how_to(result, way(result, change=Change.BATCH, batch_size=4)) + "\nBlock.forward = forward"
    )
    assert len(names["ran"]) == 14
    some = script_begin(result_of(captured(checkpointing="2")))
    assert "# yours: blocks checkpointed as by --checkpointing 2" in some


def test_float16_has_a_gradient_scaler() -> None:
    """Which scales the loss, skips an update with a gradient that overflows, and may lower its first factor then."""
    result = result_of(captured())
    lines = how_to(result, way(result, loop=Loop(precision="amp_float16")))
    made = 'scaler = torch.amp.GradScaler("cuda")'
    assert lines.splitlines()[:3] == ["# before the loop:", made, "# each step:"]
    assert lines.endswith(
        "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()"
    )
    names, _ = run(script_begin(result), lines)
    assert names["scaler"].get_scale() in (2**15, 2**16)


def test_inference_returns_an_output() -> None:
    """Of one of four samples, without a gradient: 1 x 6 x 11 logits."""
    result = result_of(captured(mode=Mode.INFERENCE, precision=Precision.AMP_BFLOAT16))
    names, _ = run(script_begin(result), how_to(result, way(result, change=Change.BATCH, batch_size=1)))
    assert names["output"].shape == (1, 6, 11)
    assert not names["output"].requires_grad


def test_shorter_sequences_are_of_batch_and_labels() -> None:
    result = result_of(captured())
    lines = how_to(result, way(result, change=Change.SEQUENCE, tokens=3)).splitlines()
    assert lines[0] == "loss_of(batch[:, :3], labels[:, :3]).backward()"


@pytest.mark.parametrize(
    ("precision", "made", "batch", "step"),
    [
        ("bfloat16", "Images().to(torch.bfloat16)", "torch.randn(4, 3, 8, 8, dtype=torch.bfloat16)", "loss_of("),
        ("amp_float16", "Images()", "torch.randn(4, 3, 8, 8)", "scaler.scale(loss_of("),
    ],
)
def test_precision_and_layout_are_stated(precision: str, made: str, batch: str, step: str) -> None:
    """The mean of squares was taken for a loss that the user alone knows. In float32 a GPU may have no room."""
    words = {"model": "printed_net.py:Images", "image": (3, 8, 8), "tokens": None, "channels_last": True}
    result = result_of(captured(precision=Precision(precision), **words))
    begin, lines = script_begin(result), how_to(result, way(result, change=Change.BATCH, batch_size=2))
    assert f"model = {made}.to(memory_format=torch.channels_last)" in begin
    assert ('\nmodel.to("cuda")\nwith torch.device("cuda"):\n' in begin) is (precision == "bfloat16")
    assert f"batch = {batch}  # yours" in begin
    assert "return your_loss(model(batch))  # yours, of what the model returns" in begin
    assert lines.startswith(f"{step}batch[:2])")
    assert ("scaler.update()" in lines) is (precision == "amp_float16")


def test_adapters_are_peft_s_where_it_can_add_them() -> None:
    """Of a model of the user's own they are a comment."""
    assert "model = Net()  # yours with adapters of rank 4\n" in script_begin(result_of(captured(lora=4)))
    known = ProgramText(("from transformers import A",), "A()")
    asked, loss = Request(model="a", batch_size=1, tokens=1, lora=4), AssumedLoss("a")
    text = text_of_request(asked, known, ((torch.ones(1, 1),), {}), loss)
    assert text.model == 'get_peft_model(A(), LoraConfig(r=4, target_modules="all-linear"))  # yours, with its weights'


def test_sections_of_a_list_that_others_may_run_between_are_the_users() -> None:
    result = result_of(captured(model="printed_net.py:Mixed"))
    assert (
        "# x = checkpoint(section, x, use_reentrant=False)" in how_to(result, way(result, **CHECKPOINTED)).splitlines()
    )


def test_sections_do_not_cross_skip_connections() -> None:
    """Blocks of one list, of which the first three are also read by the last three: `apply` alone recomputes them."""
    result = result_of(captured(model="printed_net.py:Skips"))
    lines = how_to(result, way(result, **CHECKPOINTED))
    assert "checkpoint(section" not in lines
    assert lines.splitlines()[-1].startswith("# run by: vdnnsim apply ")


def test_lines_import_the_library_of_their_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before the ways do, as those of a way that has another optimizer."""
    library = ModuleType("bitsandbytes")
    library.optim = SimpleNamespace(AdamW8bit=torch.optim.SGD)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bitsandbytes", library)
    result = result_of(captured(optimizer="adamw8bit"))
    names, _ = run(script_begin(result), how_to(result, way(result, change=Change.BATCH, batch_size=2)))
    assert isinstance(names["optimizer"], torch.optim.SGD)


def test_of_a_step_without_its_program_all_is_the_users() -> None:
    """As of a file of an earlier version: the names stand in a comment."""
    step = msgspec.structs.replace(captured(), program=ProgramText())
    result = result_of(step)
    begin = script_begin(result)
    assert "# yours, on the GPU: model, batch" in begin
    assert result.captured is not None
    of_rank = replace(result, captured=CapturedModel(msgspec.structs.replace(step, parallel="fsdp=8")))
    assert "# yours: the model of a rank, spread as fsdp=8" in script_begin(of_rank)
    assert "return your_loss(model(batch))  # yours, of what the model returns" in begin


@pytest.mark.parametrize(("precision", "cast"), [("float32", ""), ("bfloat16", ".float()"), ("amp_bfloat16", "")])
def test_a_loss_within_the_model_is_cut_by_its_user(precision: str, cast: str) -> None:
    """What its forward does in place of its cross entropy is a comment; the next tokens of transformers are known.

    Logits are cast as the model casts them: in bfloat16 to float32, which autocast does by itself.
    """
    words = {"inputs": "printed_net.py:inputs", "precision": Precision(precision)}
    step = captured(model="printed_net.py:WithLoss", **words)
    lines = how_to(result_of(step), way(result_of(step), loop=Loop(loss_chunks=8)))
    assert f"# of_part = lambda x, wanted: cross_entropy(head(x){cast}, wanted, reduction='sum')" in lines
    assert "# parts = zip(hidden.flatten(0, -2).chunk(8), labels.flatten().chunk(8))" in lines
    named = Module("", "transformers.models.net.NetForCausalLM")
    text = msgspec.structs.replace(step.program, batch='{"ids": ids, "labels": ids}')
    known = msgspec.structs.replace(step, modules=(named, *step.modules[1:]), program=text)
    lines = how_to(result_of(known), way(result_of(known), loop=Loop(loss_chunks=8, checkpointing="full")))
    assert "hidden = model(**inputs).logits.flatten(0, -2)" in lines
    assert f'    return cross_entropy(head(x){cast}, wanted, reduction="sum")' in lines
    assert "model.config.use_cache = False" in lines
