"""Tensor parallelism: layers split over neighbouring ranks, by PyTorch's styles of a `DTensor`.

Products of a block come in pairs: the first splits its columns, so that each rank has some of the heads or of the
hidden features, the second its rows, and adds up over ranks. Between two pairs all ranks would hold the same
activations. With sequence parallelism, as torchtitan has it, each holds some of the tokens there: they are gathered
before a pair, and reduced and scattered behind it (github.com/pytorch/torchtitan,
torchtitan/models/llama3/infra/parallelize.py). Logits stay split by class, and so the loss is computed
(`loss_parallel`).
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.utils._pytree import tree_map_only

from calibration.capture.blocks import blocks_of
from calibration.capture.parallel.tensor_plan import Style, styles_of
from vdnnsim.errors import CaptureError

_DIMENSIONS: Final = 3
"""Of activations between layers: samples, tokens, features."""
_TOKENS: Final = Shard(-2)
"""Of samples x tokens x features, or of samples and tokens in one."""
_WHOLE: Final = Replicate()


def split(model: nn.Module, mesh: DeviceMesh, *, shares_tokens: bool) -> None:
    """Split the layers of a model over a mesh of one dimension, by the plan that it has.

    Parameters of other layers become replicated ones, for optimizers take a list of one kind.

    Raises:
        CaptureError: it has no plan, or one that does not fit to its modules or the mesh.
    """
    styles, blocks = styles_of(model, mesh.size()), blocks_of(model)
    if shares_tokens:
        _check_blocks(model, blocks)
    modules = dict(model.named_modules())
    within = {id(each) for block in blocks for each in block.modules()}
    pairs = dict(_pairs(modules, styles, within - set(map(id, blocks)), shares_tokens=shares_tokens))
    of_pairs = {id(each) for pair in pairs.values() for each in pair.modules()}
    ties = list(_ties(model))
    between = _TOKENS if shares_tokens else _WHOLE
    # Modules are in the order in which they run.
    begin = next((place for place, each in enumerate(modules.values()) if id(each) in within), len(modules))
    behind = {path for path, each in list(modules.items())[begin:] if id(each) not in within}
    split_behind = (path for path in behind if styles.get(path, Style.REPLICATED) is not Style.REPLICATED)
    heads = {path for path in split_behind if isinstance(modules[path], nn.Linear)}
    for path, module in modules.items():
        here = between if id(module) in within or (heads and path in behind) else _WHOLE
        style = styles.get(path, Style.REPLICATED)
        if style is not Style.REPLICATED:
            given = _WHOLE if path.rpartition(".")[0] in pairs else here
            wanted = _style(module, style, given, here, is_head=path in heads)
            parallelize_module(module, mesh, wanted, src_data_rank=None)
        elif names := [name for name, _ in module.named_parameters(recurse=False)]:
            layout = Shard(0) if id(module) in of_pairs else here
            is_beside = any(True for child in module.children() for _ in child.parameters())
            if is_beside and layout is not _WHOLE:
                raise CaptureError(
                    f"--parallel: {path or type(model).__name__}: holds {', '.join(names)} beside modules, expected "
                    "these in modules of their own, as nn.Linear or nn.Embedding"
                )
            _replicate(module, mesh)
            if is_beside:
                _open_parameters(module)
            else:
                _place_inputs(module, mesh, layout)
    for owner, name, first, its in ties:
        setattr(owner, name, getattr(first, its))
    for pair in pairs.values():
        pair.register_forward_pre_hook(on_first(lambda x: _placed(x, mesh, between, _WHOLE)), with_kwargs=True)
    if shares_tokens:
        blocks[0].register_forward_pre_hook(on_first(lambda x: _shared(x, mesh)), with_kwargs=True)
        if not heads:
            blocks[-1].register_forward_hook(lambda _, __, y: _whole(y, mesh))


def _style(module: nn.Module, style: Style, given: Placement, made: Placement, *, is_head: bool) -> ParallelStyle:
    """Return PyTorch's style of a layer whose input is placed so, and whose result is, if it is whole."""
    if isinstance(module, nn.Embedding):
        kind = RowwiseParallel if style in (Style.ROWS, Style.ROWS_OF_WHOLE) else ColwiseParallel
        return kind(input_layouts=_WHOLE, output_layouts=made)
    if style in (Style.ROWS, Style.ROWS_OF_WHOLE):
        return RowwiseParallel(input_layouts=_WHOLE if style is not Style.ROWS else None, output_layouts=made)
    if is_head:
        return ColwiseParallel(input_layouts=given, use_local_output=False)
    return ColwiseParallel(input_layouts=given, output_layouts=_WHOLE if style is Style.GATHERED_COLUMNS else Shard(-1))


def _pairs(
    modules: Mapping[str, nn.Module], styles: Mapping[str, Style], inner: set[int], *, shares_tokens: bool
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules within blocks that hold pairs, as attention, by path; a block has its input elsewhere, too.

    So has a module that normalizes its input itself, and then adds it to its result, of which all ranks need the whole.

    Raises:
        CaptureError: there is such a module where ranks share the tokens.
    """
    for path, style in styles.items():
        owner = path.rpartition(".")[0]
        if style not in (Style.COLUMNS, Style.GATHERED_COLUMNS) or id(modules[owner]) not in inner:
            continue
        if not _normalizes_input(modules[owner], modules[path]):
            yield owner, modules[owner]
        elif shares_tokens:
            raise CaptureError(
                f"--parallel: {owner}: normalizes its own input, of which a rank has some of the tokens, but splits "
                "layers that need all; expected the norm and the sum behind it in the block, or sp=never"
            )


def _normalizes_input(module: nn.Module, layer: nn.Module) -> bool:
    """Whether a module holds a norm as wide as the input of a layer, and before it."""
    before = takewhile(lambda each: each is not layer, module.children())
    width, weights = getattr(layer, "in_features", None), (getattr(each, "weight", None) for each in before)
    return any(isinstance(each, nn.Parameter) and each.shape == (width,) for each in weights)


def _check_blocks(model: nn.Module, blocks: list[nn.Module]) -> None:
    lists = [each for each in model.modules() if isinstance(each, nn.ModuleList | nn.Sequential)]
    count = sum(any(child is block for block in blocks for child in each.children()) for each in lists)
    if count != 1:
        raise CaptureError(
            f"--parallel: {type(model).__name__} has {count} lists of equal blocks, expected one, between which the "
            "tokens are shared, or sp=never"
        )


def _ties(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module, str]]:
    """Yield module and name of each parameter that another module has, too, and those of the first."""
    first: dict[int, tuple[nn.Module, str]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in first:
                yield module, name, *first[id(parameter)]
            first.setdefault(id(parameter), (module, name))


def _replicate(module: nn.Module, mesh: DeviceMesh) -> None:
    """Let all ranks have the parameters of a module, without those of modules within."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        whole = DTensor.from_local(parameter.detach(), mesh, [_WHOLE], run_check=False)
        module.register_parameter(name, nn.Parameter(whole, requires_grad=parameter.requires_grad))


def _place_inputs(module: nn.Module, mesh: DeviceMesh, layout: Placement) -> None:
    """Let a module take inputs that are placed so beside its parameters; its result is local again."""

    def enter(_: nn.Module, *given: Any) -> Any:  # noqa: ANN401 - a module's arguments
        return tree_map_only(torch.Tensor, lambda each: _placed(each, mesh, layout, layout), given)

    def leave(_: nn.Module, __: Any, results: Any) -> Any:  # noqa: ANN401 - arguments and results
        return tree_map_only(DTensor, DTensor.to_local, results)

    module.register_forward_pre_hook(enter, with_kwargs=True)
    module.register_forward_hook(leave)


def _open_parameters(module: nn.Module) -> None:
    """Let a module that holds modules as well, and has whole inputs, see its parameters as plain tensors in forward."""
    names = [name for name, _ in module.named_parameters(recurse=False)]
    own: dict[str, Any] = {}

    def enter(*_: Any) -> None:  # noqa: ANN401 - of a hook
        own.update((name, vars(module).get(name)) for name in names)
        vars(module).update((name, getattr(module, name).to_local()) for name in names)

    def leave(*_: Any) -> None:  # noqa: ANN401 - of a hook
        for name, before in own.items():
            del vars(module)[name]
            if before is not None:
                vars(module)[name] = before

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave)


def _placed(x: torch.Tensor, mesh: DeviceMesh, given: Placement, wanted: Placement) -> DTensor:
    found = x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, [given], run_check=False)
    return found if found is x and given is wanted else found.redistribute(placements=[wanted])


def _shared(x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """Return the tokens of this rank."""
    if x.dim() != _DIMENSIONS or x.shape[1] % mesh.size():
        shape = "x".join(map(str, x.shape))
        raise CaptureError(
            f"--parallel: the first block gets a tensor of {shape}, expected samples x tokens x features with a "
            f"multiple of tp={mesh.size()} in tokens, or sp=never"
        )
    return _placed(x, mesh, _WHOLE, _TOKENS).to_local()


def _whole(y: Any, mesh: DeviceMesh) -> Any:  # noqa: ANN401 - what a block returns
    if isinstance(y, tuple):
        return _whole(y[0], mesh), *y[1:]
    return _placed(y, mesh, _TOKENS, _WHOLE).to_local()


def on_first(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """Return a hook that changes the first tensor among the arguments of a module."""

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for place, each in enumerate(args):
            if isinstance(each, torch.Tensor):
                return (*args[:place], change(each), *args[place + 1 :]), kwargs
        name = next(name for name, each in kwargs.items() if isinstance(each, torch.Tensor))
        return args, {**kwargs, name: change(kwargs[name])}

    return hook
