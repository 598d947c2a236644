"""A rank of several on a pretended GPU, where PyTorch's own code runs in its fake process group, and its replay."""

import dataclasses
import gc
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from calibration.capture.capture import CaptureDevice, capture
from calibration.capture.fake_tensors import replaced
from calibration.capture.iteration import prepare
from calibration.capture.losses import AssumedLoss
from calibration.capture.parallel.world import rank_of
from calibration.capture.program import Program
from tests.calibration.capture import ranks
from tests.pretended_gpu import free_cache
from tests.toy import ROOT
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.collective import Collective
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.hardware.profile import find_profile, load_profile
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import Precision
from vdnnsim.validation.row import predicted_peaks

pytestmark = pytest.mark.pretend

ITERATIONS = 3
WIDTH, SAMPLES, TOKENS, WORDS = 1024, 16, 512, 16000
MISSES = {
    ("NVIDIA H100 80GB HBM3", "fsdp=3", ""): "reserves 1.6 % less than its replay",
    ("NVIDIA GeForce RTX 4090", "fsdp=3", ""): "reserves 1.8 % more than its replay",
}
"""What is off by more than it should be, by card, layout and checkpointing.

FSDP pads shards that do not divide in copies of them, and frees the first ones: their memory, which a replay does not
know, serves later requests.
"""


class Decoder(nn.Module):
    """Layers of a transformer, and a head."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(x)
        return logits


def clear() -> None:
    # Backward runs in a thread that keeps what DTensor caches of the process group before.
    one = torch.ones((), device="cuda", requires_grad=True)
    one.register_hook(lambda _: _clear_sharding_prop_cache())  # type: ignore[no-untyped-call]
    one.backward()  # type: ignore[no-untyped-call]
    del one
    gc.collect()
    free_cache()
    torch.cuda.reset_peak_memory_stats()


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    clear()
    yield
    gc.collect()


def asked(
    layout: str, precision: Precision, checkpointing: str = "", *, layers: int = 3, samples: int = SAMPLES
) -> Program:
    made = ranks.program(layout, precision, checkpointing=checkpointing, accumulate=2 if "sync" in layout else 1)
    assert made.layout is not None
    if made.layout.tensor > 1:
        numbers = torch.zeros(samples, TOKENS, dtype=torch.int64)
        return replace(
            made,
            make_model=lambda: ranks.Decoder(WIDTH, WORDS, layers),
            make_inputs=lambda: ((numbers.clone(),), {}),
            loss=AssumedLoss("decoder"),
        )
    return replace(
        made,
        make_model=lambda: Decoder(layers),
        make_inputs=lambda: ((torch.randn(samples, TOKENS, WIDTH),), {}),
    )


def captured(wanted: Program) -> CapturedStep:
    return capture(wanted, CaptureDevice(compute_capability=torch.cuda.get_device_capability()))


def predicted(step: CapturedStep) -> MemoryCount:
    server = load_profile(find_profile(os.environ["VDNNSIM_PRETEND_NAME"], ROOT)).server
    simulator = Simulator.of(CapturedWorkload.of(step), server, MemoryModel.PYTORCH, PinnedMemory.ARENA)
    (plan,) = simulator.completed((PyTorch().plan(simulator.setting()),))
    return predicted_peaks(plan, simulator.limits, caching_allocator=True, times=ITERATIONS)


def forget_shards(model: nn.Module) -> None:
    """Free the shards that FSDP holds beside the parameters, when these are on `meta` already.

    `reset_sharded_param` leaves them until the parameters have memory again, which would then lie between theirs.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            for group in module._get_fsdp_state()._fsdp_param_groups:  # noqa: SLF001 - PyTorch has no public one
                for each in group.fsdp_params:
                    each._sharded_param_data = each._sharded_param_data.to("meta")  # noqa: SLF001


def counted(wanted: Program) -> tuple[int, int, list[Collective]]:
    """Allocated and reserved at most in a few iterations, weights having been allocated as shards at once.

    And the collectives of one more.

    Sharding on the GPU leaves blocks that the allocator does not split, as torchtitan avoids by the device `meta`.
    """
    assert wanted.layout is not None
    with rank_of(wanted.layout.ranks, rank=wanted.layout.rank):
        iteration = prepare(wanted, wanted.make_model(), "cuda", foreach=True)
        if not wanted.layout.is_replicated:
            # Else the optimizer would have the old ones.
            with replaced(torch.__future__, "_swap_module_params_on_conversion", value=wanted.has_pipeline):
                iteration.model.to("meta")
                forget_shards(iteration.model)
                gc.collect()
                torch.cuda.empty_cache()
                iteration.model.to_empty(device="cpu" if wanted.layout.offloads else "cuda")
        torch.cuda.reset_peak_memory_stats()
        for _ in range(ITERATIONS):
            iteration.run(lambda _: None)
        peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        with ranks.Collectives() as collectives:
            iteration.run(lambda _: None)
        return *peaks, collectives.found


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context")
@pytest.mark.parametrize(
    ("layout", "checkpointing"),
    [
        *((layout, "") for layout in ("ddp=8", "zero1=4", "fsdp=8", "fsdp=3", "zero2=4", "hsdp=2x2")),
        *(("fsdp=4", how) for how in ("full", "selective", "2")),
        *((layout, "") for layout in ("fsdp=4,offload=cpu", "fsdp=4,sync=last", "ddp=4,sync=last")),
        ("ddp=4,reduce=bfloat16", ""),
        *((layout, "") for layout in ("fsdp=4,wrap=4M", "fsdp=4,reduce=bfloat16", "zero2=4,prefetch=1")),
        *(("fsdp=4,prefetch=2", how) for how in ("", "full")),
        *((layout, "") for layout in ("tp=8", "tp=4,sp=never", "fsdp=8,tp=8", "hsdp=2x2,tp=2", "fsdp=2,tp=2,wrap=1M")),
        *((layout, "") for layout in ("ddp=2,tp=2", "zero1=2,tp=4", "ddp=2,tp=2,sp=never")),
        *(("fsdp=4,tp=2", how) for how in ("full", "selective")),
    ],
)
def test_peak_and_collectives_of_a_rank_are_those_of_its_replay(
    layout: str, checkpointing: str, request: pytest.FixtureRequest
) -> None:
    """In mixed precision; a kernel takes memory for a moment as well, less than half a percent of what is allocated.

    What is reserved depends on the pools of each stream, and on segments of 2 MiB that a kernel's memory fills or not;
    with split layers also on one of 20 MiB.
    """
    if miss := MISSES.get((os.environ["VDNNSIM_PRETEND_NAME"], layout, checkpointing)):
        request.applymarker(pytest.mark.xfail(reason=miss))
    check(asked(layout, Precision.AMP_BFLOAT16, checkpointing))


def compared(wanted: Program) -> tuple[int, int]:
    """Hold what a rank allocates and exchanges against its replay; return what both reserve."""
    allocated, reserved, collectives = counted(wanted)

    step = captured(wanted)
    found = predicted(step)
    exchanges = (each.collective for each in step.operations if each.collective is not None)
    assert [each for each in exchanges if not each.is_of_host] == collectives
    assert found.allocated_bytes == pytest.approx(allocated, rel=0.005)
    assert found.reserved_bytes is not None
    return reserved, found.reserved_bytes


def check(wanted: Program) -> None:
    assert wanted.layout is not None
    reserved, found_bytes = compared(wanted)
    # Copies from the host share a pool with gathered weights in PyTorch, not in a replay.
    splits, within = (
        wanted.layout.tensor > 1,
        0.07 if wanted.has_pipeline else 0.013 if wanted.layout.offloads else 0.01,
    )
    assert found_bytes == pytest.approx(reserved, rel=within, abs=20 * 2**20 if splits else 0)


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context")
@pytest.mark.parametrize(
    ("layout", "position", "checkpointing"),
    [
        *(("pp=4", position, "") for position in (0, 1, 3)),
        *(("pp=2,interleave=2", position, "") for position in (0, 1)),
        *(("pp=2,fsdp=2", position, how) for position in (0, 1) for how in ("", "full")),
        *((layout, position, "") for layout in ("pp=2,tp=2", "pp=2,ddp=2") for position in (0, 1)),
        *(("pp=2,zero1=2", 1, ""), ("pp=2,fsdp=2,tp=2", 1, "full"), ("pp=2,ddp=2,tp=2", 0, "")),
    ],
)
def test_peak_and_sends_of_a_stage_are_those_of_its_replay(layout: str, position: int, checkpointing: str) -> None:
    """Four layers over four stages, or over two with two each, and eight micro-batches of two samples."""
    made = asked(layout, Precision.AMP_BFLOAT16, checkpointing, layers=4, samples=SAMPLES // 8)
    assert made.layout is not None
    placed = dataclasses.replace(made.layout, position=position)
    check(replace(made, layout=placed, batch_size=SAMPLES // 8, accumulate=8))


SIZES: dict[str, Any] = {"hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": 16}
WIDE = SIZES | {"intermediate_size": 4 * WIDTH, "vocab_size": WORDS}


def of_transformers(name: str) -> Any:  # noqa: ANN401 - a model; its library has no types here
    """Return a model of three layers; its library takes seconds to import."""
    import transformers

    causal = transformers.AutoModelForCausalLM.from_config
    match name:
        case "llama":
            return causal(transformers.LlamaConfig(**WIDE, num_key_value_heads=8))
        case "qwen2":
            return causal(transformers.Qwen2Config(**WIDE, num_key_value_heads=8))
        case "gpt2":
            words: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}
            return causal(transformers.GPT2Config(n_embd=WIDTH, n_layer=3, n_head=16, vocab_size=WORDS, **words))
        case "opt":
            return causal(
                transformers.OPTConfig(**SIZES, ffn_dim=4 * WIDTH, vocab_size=WORDS, word_embed_proj_dim=WIDTH)
            )
        case "bert":
            return transformers.BertForMaskedLM(transformers.BertConfig(**WIDE))
        case "t5":
            words = {"d_ff": 4 * WIDTH, "num_layers": 3, "num_heads": 16, "vocab_size": WORDS}
            return transformers.T5ForConditionalGeneration(transformers.T5Config(d_model=WIDTH, **words))
        case "vit":
            config = transformers.ViTConfig(**SIZES, intermediate_size=4 * WIDTH)
            return transformers.ViTForImageClassification(config)
        case _:
            return transformers.ConvNextForImageClassification(transformers.ConvNextConfig())


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context")
@pytest.mark.filterwarnings("ignore:Grad strides do not match bucket view strides")  # of convolutions of one channel
@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        *((name, "ddp=8 fsdp=8 zero2=8 zero1=8") for name in ("t5", "convnext")),
        *((name, "ddp=8 fsdp=8 zero2=8 zero1=8 tp=8 fsdp=4,tp=2") for name in ("opt", "bert")),
        ("vit", "ddp=8 fsdp=8 zero2=8 zero1=8 tp=8,sp=never fsdp=4,tp=2,sp=never ddp=4,tp=2,sp=never"),
        *(
            (name, "ddp=8 fsdp=8 zero2=8 zero1=8 tp=8 fsdp=4,tp=2 pp=2 pp=3,tp=2")
            for name in ("llama", "qwen2", "gpt2")
        ),
    ],
)
def test_ranks_of_eight_models(name: str, layouts: str, subtests: pytest.Subtests) -> None:
    """What is reserved may be off by up to a tenth where optimizer states lie among blocks of another size (zero1)."""
    for layout in layouts.split():
        parsed = parse_layout(layout)
        samples = 2 if parsed.pipeline > 1 else 8
        words = {"input_ids": torch.zeros(samples, TOKENS, dtype=torch.int64)}
        if name == "t5":
            words["decoder_input_ids"] = words["input_ids"]
        if name in ("vit", "convnext"):
            words = {"pixel_values": torch.zeros(32, 3, 224, 224)}
        for position in {0, parsed.pipeline - 1}:
            wanted = ranks.program(
                layout,
                Precision.AMP_BFLOAT16,
                position,
                make_model=partial(of_transformers, name),
                make_inputs=lambda words=words: ((), {key: each.clone() for key, each in words.items()}),
                loss=AssumedLoss(name),
                accumulate=8 if parsed.pipeline > 1 else 1,
            )
            with subtests.test(layout=layout, position=position):
                compared(wanted)
            clear()
