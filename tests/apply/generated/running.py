"""Runs a loop, and writes down to the bit what each of its acts leaves behind."""

import copy
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

from tests.apply.generated.loops import Act
from tests.apply.generated.plans import SAMPLES
from tests.apply.generated.trees import batch_of
from tests.apply.models import loss
from tests.apply.training import Applied

Found = list[tuple[str, list[Tensor]]]
"""What each act left behind, by what it says of itself."""


REFUSED: Final = ", refused"
REFUSED_TO_RECOMPUTE: Final = ", refused for what is recomputed"


class UserError(Exception):
    """Raised within a loop, which catches it."""


class Running:
    """A loop while it runs, on two copies of a model in the contexts of their plans; acts leave behind `found`."""

    def __init__(
        self,
        model: nn.Module,
        applied: Sequence[Applied],
        rest: Callable[[], None],
        *,
        narrow: bool = False,
        samples: int = SAMPLES,
    ) -> None:
        self._applied, self._rest_plans, self._is_narrow, self._samples = applied, rest, narrow, samples
        self._device = next(model.parameters()).device
        self._models = [copy.deepcopy(model).train() for _ in range(2)]
        self._optimizers = [torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9) for each in self._models]
        self._losses: dict[str, Tensor] = {}
        self._inputs: list[Tensor] = []
        self._contexts: dict[bool, list[AbstractContextManager[Any]]] = {False: [], True: []}
        self._kept: list[Tensor] = []
        self._streams: Sequence[Callable[[torch.optim.Optimizer, nn.Module], None]] = ()
        self.found: Found = []

    def stream(self, streams: Sequence[Callable[[torch.optim.Optimizer, nn.Module], None]]) -> None:
        """Have plans, by model, keep the states of its optimizer on the host."""
        self._streams = streams
        for each in zip(self._streams, self._optimizers, self._models, strict=True):
            each[0](*each[1:])

    def run(self, acts: Sequence[Act]) -> None:
        torch.manual_seed(5)
        # A new thread has one for each core, and MKL's FFT rounds by their number, so what it recomputed would differ.
        as_here = partial(torch.set_num_threads, torch.get_num_threads())
        with ThreadPoolExecutor(1, initializer=as_here) as thread, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                for act in (*acts, Act("see weights")):
                    if act.in_thread:
                        thread.submit(_heard, _get_current_dispatch_mode_stack(), partial(self._do, act)).result()
                    else:
                        self._do(act)
            finally:
                modes = _get_current_dispatch_mode_stack()
                thread.submit(_heard, modes, partial(self._end, self._contexts[True])).result()
                self._end(self._contexts[False])

    def _end(self, contexts: list[AbstractContextManager[Any]]) -> None:
        while contexts:
            contexts.pop().__exit__(None, None, None)
        # Of a backward that failed PyTorch keeps what is left until the next one of the thread.
        torch.zeros((), requires_grad=True).backward()  # type: ignore[no-untyped-call]

    def _do(self, act: Act) -> None:
        label, tensors = str(act), list[Tensor]()
        buffers = [each for model in self._models for each in model.buffers()] if act.verb == "backward" else []
        before = [each.clone() for each in buffers]
        try:
            tensors += getattr(self, "_" + act.verb.replace(" ", "_"))(act, self._models[act.who]) or ()
        except UserError:
            self._synchronize()
            label += ", raised"
        except RuntimeError as error:
            self._synchronize()
            # By PyTorch, or by the plan in its place, which may come sooner: nothing of what was summed up is kept, nor
            # what checkpoints wrote into buffers until then.
            label += REFUSED_TO_RECOMPUTE if "to recompute a part of forward" in str(error) else REFUSED
            for model in self._models:
                model.zero_grad()
            for buffer, former in zip(buffers, before, strict=True):
                buffer.data.copy_(former)
            self._inputs.clear()
            for each in act.names:
                self._losses.pop(each, None)
        self.found.append((label, [*(each.detach().cpu().clone() for each in tensors), torch.get_rng_state()]))

    def _synchronize(self) -> None:
        """Wait for all streams: the current one waits for those of backward only where that ends without an error."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _open(self, act: Act, model: nn.Module) -> None:
        context = self._applied[act.who](model)
        context.__enter__()
        self._contexts[act.in_thread].append(context)

    def _close(self, act: Act, _: nn.Module) -> None:
        if contexts := self._contexts[act.in_thread]:
            contexts.pop().__exit__(None, None, None)

    def _raise(self, act: Act, _: nn.Module) -> None:
        if contexts := self._contexts[act.in_thread]:
            try:
                raise UserError  # noqa: TRY301
            except UserError as error:
                contexts.pop().__exit__(UserError, error, error.__traceback__)

    def _forward(self, act: Act, model: nn.Module) -> list[Tensor]:
        (name,) = act.names
        batch = batch_of(self._samples - (act.how == "another batch")).to(self._device)
        if act.how in ("input wants a gradient", "reentrantly checkpointed"):
            self._inputs.append(batch.requires_grad_())
        with ExitStack() as stack:
            run: Callable[[Tensor], Tensor] = model
            if act.how in _CONTEXTS:
                stack.enter_context(_CONTEXTS[act.how]())
            elif act.how == "evaluation":
                model.eval()
                stack.callback(model.train)
            elif act.how in ("outputs kept", "an output written over", "fails at the end"):
                stack.enter_context(self._hooked(act.how, model))
            elif "checkpointed" in act.how:
                run = _checkpointed(model, use_reentrant=act.how.startswith("reentrantly"))
            if self._is_narrow != (act.how == "autocast"):
                stack.enter_context(torch.autocast(self._device.type, torch.bfloat16))
            result = loss(run(batch))
        if act.how == "an output written over":
            with torch.no_grad():
                self._kept[-1].add_(1)
        if act.how not in ("no gradients", "inference"):
            self._losses[name] = result
        return [result, *model.buffers()]

    @contextmanager
    def _hooked(self, how: str, model: nn.Module) -> Iterator[None]:
        def keep(_: nn.Module, __: object, result: Tensor) -> None:
            self._kept.append(result)

        def fail(_: nn.Module, __: object, ___: object) -> None:
            raise UserError

        parts = list(model.children())
        if how == "fails at the end":
            hooks = [parts[-1].register_forward_hook(fail)]
        else:
            wanted = parts if how == "outputs kept" else parts[len(parts) // 2 :][:1]
            hooks = [each.register_forward_hook(keep) for each in wanted]
        try:
            yield
        finally:
            for each in hooks:
                each.remove()

    def _backward(self, act: Act, _: nn.Module) -> list[Tensor]:
        losses = [self._losses[each] for each in act.names if each in self._losses]
        if not losses:
            return []
        total = torch.stack(losses).sum() if len(losses) > 1 else losses[0]
        weights = [each for one in self._models for each in one.parameters() if each.requires_grad]
        found: Sequence[Tensor | None] = ()
        match act.how:
            case "retained":
                total.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            case "by torch.autograd.grad":
                found = torch.autograd.grad(total, weights, allow_unused=True)
            case "of the last weight, retained":
                found = torch.autograd.grad(total, weights[-1:], allow_unused=True, retain_graph=True)
            case "penalty":
                slopes = torch.autograd.grad(total, weights, allow_unused=True, create_graph=True)
                found_slopes: Sequence[Tensor | None] = slopes
                penalty = sum((each.square().sum() for each in found_slopes if each is not None), start=total)
                penalty.backward()  # type: ignore[no-untyped-call]
            case "fails midway":
                weight = weights[len(weights) // 4]
                with weight.register_hook(_fail):  # type: ignore[no-untyped-call]
                    total.backward(retain_graph=True)  # type: ignore[no-untyped-call]
            case _:
                total.backward()  # type: ignore[no-untyped-call]
        if "retained" not in act.how:
            for each in act.names:
                self._losses.pop(each, None)
        given = [each.grad for each in (*self._models[0].parameters(), *self._models[1].parameters(), *self._inputs)]
        return [each for each in (*found, *given) if each is not None]

    def _drop(self, act: Act, _: nn.Module) -> None:
        self._losses.pop(act.names[0], None)

    def _zero(self, _: Act, model: nn.Module) -> None:
        model.zero_grad()

    def _zero_to_zeros(self, _: Act, model: nn.Module) -> None:
        model.zero_grad(set_to_none=False)

    def _clip(self, _: Act, model: nn.Module) -> list[Tensor]:
        return [nn.utils.clip_grad_norm_(model.parameters(), 0.1)]

    def _update(self, act: Act, _: nn.Module) -> None:
        self._optimizers[act.who].step()
        self._kept.clear()
        self._inputs.clear()

    def _evaluate(self, _: Act, model: nn.Module) -> list[Tensor]:
        model.eval()
        with torch.no_grad():
            result = loss(model(batch_of(self._samples).to(self._device)))
        model.train()
        return [result]

    def _reload(self, _: Act, model: nn.Module) -> None:
        model.load_state_dict(copy.deepcopy(model.state_dict()))

    def _reload_by_assignment(self, act: Act, model: nn.Module) -> None:
        model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
        self._optimizers[act.who] = torch.optim.SGD(model.parameters(), lr=0.05)
        if self._streams:
            self._streams[act.who](self._optimizers[act.who], model)

    def _change_weights(self, _: Act, model: nn.Module) -> None:
        with torch.no_grad():
            for each in model.parameters():
                each.mul_(1.01)

    def _replace_weights(self, _: Act, model: nn.Module) -> None:
        # Of a leaf PyTorch saves the tensor itself, whose data is then another; hooks, its own among them, get the old.
        if not self._losses:
            for each in model.parameters():
                each.data = each.data * 0.99

    def _collect(self, _: Act, __: nn.Module) -> None:
        gc.collect()

    def _freeze_or_melt(self, _: Act, model: nn.Module) -> None:
        first = next(model.parameters())
        first.requires_grad_(not first.requires_grad)

    def _draw_a_number(self, _: Act, __: nn.Module) -> list[Tensor]:
        return [torch.rand(1)]

    def _rest(self, _: Act, __: nn.Module) -> None:
        self._rest_plans()

    def _see_weights(self, _: Act, __: nn.Module) -> list[Tensor]:
        weights = [each for model in self._models for each in model.state_dict().values()]
        pairs = zip(self._models, self._optimizers, strict=True)
        states = [optimizer.state.get(each, {}) for model, optimizer in pairs for each in model.parameters()]
        return [*weights, *(each for state in states for each in state.values() if isinstance(each, Tensor))]


_CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "saved on the host": torch.autograd.graph.save_on_cpu,
}


def _heard(modes: Sequence[TorchDispatchMode], work: Callable[[], None]) -> None:
    """Do what another thread asks for, whose modes of dispatch this one has meanwhile."""
    with ExitStack() as stack:
        for each in modes:
            stack.enter_context(each)
        work()


def _checkpointed(model: nn.Module, *, use_reentrant: bool) -> Callable[[Tensor], Tensor]:
    def run(batch: Tensor) -> Tensor:
        result: Tensor = checkpoint(model, batch, use_reentrant=use_reentrant)
        return result

    return run


def _fail(_: Tensor) -> None:
    raise UserError
