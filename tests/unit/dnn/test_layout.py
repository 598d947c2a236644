"""Names of layouts over several GPUs."""

from typing import Any

import pytest

from vdnnsim.dnn.layout import Layout, parse_layout
from vdnnsim.errors import CaptureError
from vdnnsim.units import ElementType

HALVES = {"shards": 8, "reshards": False}


@pytest.mark.parametrize(
    ("text", "data", "parts"),
    [
        ("ddp=8", "ddp", {"copies": 8}),
        ("zero1=4", "zero1", {"copies": 4}),
        ("fsdp=8", "fsdp", {"shards": 8}),
        ("fsdp=8,reshard=never", "fsdp", HALVES),
        ("fsdp=8,reshard=4", "fsdp", {"shards": 8, "reshards": 4}),
        ("zero2=8", "zero2", HALVES),
        ("hsdp=2x4", "hsdp", {"copies": 2, "shards": 4}),
        ("fsdp=4,tp=2", "fsdp", {"shards": 4, "tensor": 2}),
        ("fsdp=4, tp=2 ", "fsdp", {"shards": 4, "tensor": 2}),
        ("tp=8", "", {"tensor": 8}),
        ("ranks=8", "ranks", {"copies": 8}),
        ("ranks=8,pp=2", "ranks", {"copies": 4, "pipeline": 2}),
        ("ddp=8,sync=last", "ddp", {"copies": 8, "syncs": False}),
        ("zero1=2,tp=4", "zero1", {"copies": 2, "tensor": 4}),
        ("ddp=8,reduce=fp16", "ddp", {"copies": 8, "reduction": ElementType.FLOAT16}),
        ("fsdp=8,wrap=100M", "fsdp", {"shards": 8, "unit_parameters": 10**8}),
        ("zero2=8,reduce=bf16,prefetch=1", "zero2", {**HALVES, "reduction": ElementType.BFLOAT16, "prefetch": 1}),
        ("fsdp=8,offload=cpu", "fsdp", {"shards": 8, "offloads": True}),
        ("zero2=4,tp=2,sp=never", "zero2", {"shards": 4, "tensor": 2, "reshards": False, "shares_tokens": False}),
    ],
)
def test_a_layout_is_read_term_by_term(text: str, data: str, parts: dict[str, Any]) -> None:
    assert parse_layout(text) == Layout(text.replace(" ", ""), data, **parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a layout"),
        ("fdsp=8", "'fdsp' is not a layout; did you mean 'fsdp'"),
        ("zero3=8", "found 'zero3=8', expected fsdp=N, which shards as ZeRO-3 does"),
        ("ddp=8,offload=cpu", "found offload=cpu in 'ddp=8,offload=cpu', expected it beside fsdp=N"),
        ("pp=2,fsdp=4,sync=last", "found sync=last in 'pp=2,fsdp=4,sync=last', expected it beside ddp=N"),
        ("fsdp=8,offload=gpu", "found 'offload=gpu', expected offload=cpu, or nothing of it"),
        ("fsdp=4,ep=4", "found 'ep=4'; how many tokens an expert gets is known to its router alone"),
        ("cp=8", "found 'cp=8'; PyTorch shares out the tokens of attention"),
        ("fsdp", "found 'fsdp=', expected how many GPUs, from 2 on, as fsdp=8"),
        ("fsdp=1", "found 'fsdp=1', expected how many GPUs"),
        ("fsdp=-2", "found 'fsdp=-2', expected how many GPUs"),
        ("hsdp=8", "found 'hsdp=8', expected copies x shards, as hsdp=2x4"),
        ("hsdp=1x8", "found 'hsdp=1x8', expected copies x shards"),
        ("fsdp=4,ddp=2", "found 'fsdp=4,ddp=2', expected one of fsdp and ddp"),
        ("tp=4,tp=2", "expected one of tp and tp"),
        ("fsdp=4,reshard=always", "found 'reshard=always', expected reshard=never or reshard=N"),
        ("fsdp=8,reshard=3", "found reshard=3 in 'fsdp=8,reshard=3', expected a divisor of 8"),
        ("fsdp=8,reshard=1", "found 'reshard=1', expected reshard=never or reshard=N"),
        ("zero2=8,reshard=4", "found reshard=4 in 'zero2=8,reshard=4', expected fsdp=N, for zero2 keeps weights"),
        ("reshard=4,zero2=8", "found reshard=4 in 'reshard=4,zero2=8', expected fsdp=N, for zero2 keeps weights"),
        ("ddp=4,reshard=2", "found reshard=2 in 'ddp=4,reshard=2', expected it beside fsdp=N"),
        ("fsdp=4,sp=never", "found sp=never in 'fsdp=4,sp=never', expected it beside tp=N"),
        ("ranks=4,tp=2", "found 'ranks=4,tp=2', expected ranks=N alone"),
        ("ddp=4,reduce=float32", "found reduce=float32 in 'ddp=4,reduce=float32', expected reduce=bfloat16 or"),
        ("tp=4,reduce=bfloat16", "found reduce in 'tp=4,reduce=bfloat16', expected it beside ddp=N"),
        ("tp=4,wrap=1M", "found wrap in 'tp=4,wrap=1M', expected it beside fsdp=N"),
        ("fsdp=4,wrap=1MB", "found 'wrap=1MB', expected how many parameters, as wrap=100M"),
        ("pp=2,fsdp=4,wrap=1M", "found wrap in 'pp=2,fsdp=4,wrap=1M', expected it without pp"),
        ("fsdp=4,reduce=int8", "found 'reduce=int8', expected one of float32, bfloat16, float16, fp32"),
        ("fsdp=4,prefetch=0", "found 'prefetch=0', expected how many blocks ahead, from 1 on, as prefetch=2"),
        ("fsdp=4,prefetch=1,prefetch=2", "expected one of prefetch and prefetch"),
        ("ddp=4,reshard=never", "found reshard=never in 'ddp=4,reshard=never', expected it beside fsdp=N"),
        ("fsdp=4,interleave=2", "found interleave in 'fsdp=4,interleave=2', expected it beside pp=N"),
        ("ranks=5,pp=2", "found 'ranks=5,pp=2', expected ranks=N,pp=M alone"),
        ("ranks=8,pp=2,interleave=2", "found 'ranks=8,pp=2,interleave=2', expected ranks=N,pp=M alone"),
        ("pp=2,pp=2", "expected one of pp and pp"),
    ],
)
def test_another_text_is_no_layout(text: str, message: str) -> None:
    with pytest.raises(CaptureError, match=r"^--parallel: ") as failure:
        parse_layout(text)
    assert message in str(failure.value)
