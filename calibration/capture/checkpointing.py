"""Activation checkpointing of the blocks of a model: full, selective by operator, or of every n-th block.

Selective is torchtitan's `selective` by operator: kept are the results of every second product of matrices, and of what
costs more than memory, as attention and collectives; all else is recomputed (github.com/pytorch/torchtitan,
torchtitan/distributed/activation_checkpoint.py, `_apply_op_sac` and its list of operators).
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from calibration.capture.blocks import checkpointed_blocks
from calibration.capture.running_module import Recomputed
from vdnnsim.errors import CaptureError

_PRODUCT: Final = "aten.mm.default"
_KEPT: Final = frozenset(
    {
        _PRODUCT,
        "aten.linear.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_cudnn_attention.default",
        "aten._scaled_dot_product_attention_math.default",
        "aten._scaled_dot_product_fused_attention_overrideable.default",
        "_c10d_functional.reduce_scatter_tensor.default",
        "_c10d_functional.all_to_all_single.default",
        "aten.max.default",
    }
)


def checkpoint_blocks(model: nn.Module, how: str, blocks: Sequence[nn.Module] = ()) -> list[nn.Module]:
    """Let a model recompute its blocks in backward: `full`, `selective`, or every so many, as `2`.

    Blocks are those of `checkpointed_blocks` if none are given; returns those with checkpoints, which stay what they
    are, for a forward may look at their class.

    Raises:
        CaptureError: the model has no such blocks, or fewer.
    """
    every = int(how) if how.isdigit() else 1
    if not blocks and every > len(blocks := checkpointed_blocks(model)) > 0:
        raise CaptureError(
            f"--checkpointing: found {how} for {type(model).__name__} of {len(blocks)} blocks, expected at most that"
        )
    if not blocks:
        raise CaptureError(
            f"--checkpointing: {type(model).__name__} has no list of equal blocks, expected a ModuleList or Sequential "
            "of at least two modules of one class, or two of a class that have parts"
        )
    for module in model.modules():
        # A cache of keys and values would grow as blocks run again; transformers leaves it out as well.
        if getattr(getattr(module, "config", None), "use_cache", False):
            module.config.use_cache = False  # type: ignore[union-attr]  # just found
    more: dict[str, Any] = {"context_fn": _selective} if how == "selective" else {}
    chosen = list(blocks[every - 1 :: every])
    for each in chosen:
        recomputed = partial(checkpoint, Recomputed(each), use_reentrant=False, preserve_rng_state=False, **more)
        each.forward = recomputed
    return chosen


def add_checkpoints(model: nn.Module, how: str) -> Callable[[], None]:
    """Let a model recompute its blocks, as `checkpoint_blocks`; returns a function that makes it what it was."""
    configs = [config for each in model.modules() if (config := getattr(each, "config", None)) is not None]
    caching = [each for each in configs if getattr(each, "use_cache", False)]
    before = {id(each): each.forward for each in model.modules()}
    chosen = checkpoint_blocks(model, how)

    def undo() -> None:
        for block in chosen:
            del block.forward
            if block.forward != before[id(block)]:
                # It had one of its own, not that of its class.
                block.forward = before[id(block)]
        for each in caching:
            each.use_cache = True

    return undo


@contextmanager
def running_within_hooks() -> Iterator[None]:
    """Let selective checkpoints run within our hooks, of which a later PyTorch will ask which comes first."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A saved_tensors_hooks context")
        yield


def _selective() -> Any:  # noqa: ANN401 - two contexts of PyTorch's
    counts: Counter[bool] = Counter()

    def policy(context: Any, func: Callable[..., Any], *_: Any, **__: Any) -> CheckpointPolicy:  # noqa: ANN401
        again, name = bool(context.is_recompute), str(func)
        if name == _PRODUCT:
            counts[again] += 1
        is_kept = name in _KEPT and not (name == _PRODUCT and counts[again] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]
