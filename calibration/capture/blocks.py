"""The blocks of a model: the equal parts, one after the other, that FSDP shards and checkpoints recompute."""

from collections import Counter

from torch import nn


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


def _parameters(modules: list[nn.Module]) -> int:
    return sum(each.numel() for module in modules for each in module.parameters())
