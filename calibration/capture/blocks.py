"""The blocks of a model: the equal parts, one after the other, that FSDP shards and checkpoints recompute."""

from collections import Counter

from torch import nn

_LISTS = nn.ModuleList | nn.Sequential | nn.ModuleDict


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Return the modules of the class with the most parameters that repeats in lists of a model; none without lists.

    A list is a `ModuleList` or a `Sequential` of at least two modules of one class. Lists within blocks do not count:
    of a vision transformer the blocks are its layers, not the parts of one.
    """
    lists: dict[type, list[nn.Module]] = {}
    within: set[int] = set()
    for module in model.modules():
        if id(module) in within or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        counted = Counter(type(each) for each in module.children())
        for kind, count in counted.items():
            if count > 1 and not isinstance(module, kind):
                found = [each for each in module.children() if type(each) is kind]
                lists.setdefault(kind, []).extend(found)
                within.update(id(inner) for each in found for inner in each.modules())
    return max(lists.values(), key=_parameters, default=[])


def checkpointed_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks of a model that are checkpointed; where these have less than half of its parameters, its parts.

    These are modules with children, but no lists, whose class occurs several times, the outermost: residual and
    attention blocks of a U-Net, which stand beside one another in short lists. `vdnnsim.dnn.training_loops` has the
    same rule for captured steps.
    """
    blocks = blocks_of(model)
    if 2 * _parameters(blocks) >= _parameters([model]):
        return blocks
    inner = [each for each in model.modules() if each is not model and not isinstance(each, _LISTS)]
    counted = Counter(type(each) for each in inner if any(True for _ in each.children()))
    within: set[int] = set()
    parts = []
    for each in inner:
        if counted[type(each)] > 1 and id(each) not in within:
            parts.append(each)
            within.update(map(id, each.modules()))
    return max(blocks, parts, key=_parameters)


def _parameters(modules: list[nn.Module]) -> int:
    return sum(each.numel() for module in modules for each in module.parameters())
