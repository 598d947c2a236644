"""Advice for a captured model that does not fit, and that following it helps."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec

from tests.captured_steps import Recording, X, Y, chain
from vdnnsim.api.scenarios import run_and_advise
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, Storage
from vdnnsim.dnn.workload import Mode
from vdnnsim.hardware.profile import load_profile
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.advice import held_bytes
from vdnnsim.units import Precision, format_bytes

PROFILE = Path(__file__).parents[3] / "hw_profiles" / "rtx_4090.yaml"
MIB = 2**20


def asked(model: CapturedModel, capacity: int) -> Scenario:
    """Return the scenario of a model under `pytorch` on a card of so many bytes, whose memory has no gaps."""
    profile = load_profile(PROFILE)
    server = replace(profile.server, gpu=replace(profile.server.gpu, memory_bytes=capacity, context_bytes=0))
    policies = (resolve_policy("pytorch", known_policies()),)
    return replace(scenario_of(model, "x", replace(profile, server=server), policies), memory_model=MemoryModel.IDEAL)


def advice_of(scenario: Scenario, recaptured: list[Precision] | None = None) -> tuple[str, ...]:
    """Return the advice; a model is captured again as the same step in another precision."""
    model = scenario.captured
    assert model is not None

    def recapture(precision: Precision) -> CapturedStep:
        assert recaptured is not None
        recaptured.append(precision)
        return msgspec.structs.replace(model.base, precision=precision)

    return run_and_advise(scenario, known_policies(), None if recaptured is None else recapture).advice


def with_storage(step: CapturedStep, kind: BufferKind, nbytes: int) -> CapturedStep:
    """Return a step with more given memory, which no operation touches."""
    storage = Storage("more", kind, nbytes, "float32", given=True)
    return msgspec.structs.replace(step, storages=(*step.storages, storage))


def test_held_bytes_are_weights_states_and_gradients() -> None:
    """The chain has three weights of 4 B and as many gradients; of states there are 8 B here."""
    step = with_storage(chain(2), BufferKind.OPTIMIZER_STATE, 8)
    assert held_bytes(chain(2)) == 3 * 4 + 3 * 4
    assert held_bytes(step) == 3 * 4 + 3 * 4 + 8


def test_the_advised_batch_fits_and_one_more_does_not() -> None:
    """A million bytes of maps and more of 20,000 images, on a card of 1 MiB."""
    model = CapturedModel(chain(20_000), chain(10_000))
    (line,) = [each for each in advice_of(asked(model, MIB)) if each.startswith("a smaller batch: ")]
    found = re.fullmatch(r"a smaller batch: of (\d+) images under pytorch\(p\)", line)
    assert found is not None
    largest = int(found[1])
    fits = [run_scenario(asked(CapturedModel(chain(n)), MIB)).results[0].fits for n in (largest, largest + 1)]
    assert fits == [True, False]


def test_policies_that_fit_are_advised_with_their_memory() -> None:
    """Where `pytorch` needs a byte more than there is, one that offloads its maps fits and takes longer."""
    model = CapturedModel(chain(20_000))
    needed = run_scenario(asked(model, 64 * MIB)).results[0].metrics.max_memory_bytes
    (line,) = (each for each in advice_of(asked(model, needed - 512)) if "save_on_cpu(p) takes " in each)
    assert line.startswith("another policy: ")
    assert float(line.split(" per iteration, ")[1].partition(" ")[0]) > 1
    assert advice_of(asked(model, 64 * MIB), []) == ()


def test_expandable_segments_are_advised_against_gaps() -> None:
    """In 84 MiB: 20 MiB in a segment that was of 40 keep it, and no other 40 are there beside the first 12.

    So segments are 12 + 40 + 40 = 92 MiB; one that grows has 12 + 20 + 40 = 72, in parts of 20.
    """
    note = Recording("gaps", 1, ["a", "b", "c", "d"])
    first, kept, part, last = (
        note.memory(name, BufferKind.FEATURE_MAP, (megabytes, 2**18), held=name == "last")
        for name, megabytes in (("first", 40), ("kept", 12), ("part", 20), ("last", 40))
    )
    note.run("a", "a", Phase.FORWARD, writes=[(Y, first)])
    note.run("b", "b", Phase.FORWARD, reads=[(X, first)], writes=[(Y, kept)])
    note.run("c", "c", Phase.FORWARD, reads=[(X, kept)], writes=[(Y, part)])
    note.run("d", "d", Phase.FORWARD, reads=[(X, part), (X, kept)], writes=[(Y, last)])
    model = CapturedModel(note.step(Mode.INFERENCE))
    lines = advice_of(replace(asked(model, 84 * MIB), memory_model=MemoryModel.PYTORCH))
    (line,) = (each for each in lines if each.startswith("another setting: "))
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True pytorch(p) takes 80.0 MiB" in line


def test_advice_on_precision_batch_optimizer_and_card() -> None:
    """The same step in another precision takes as much, and so does not fit either."""
    recaptured: list[Precision] = []
    lines = advice_of(asked(CapturedModel(chain(20_000)), MIB), recaptured)
    assert any(each.startswith("a smaller batch: chain: was captured at a batch of 20000") for each in lines)
    assert recaptured == [Precision.AMP_BFLOAT16, Precision.BFLOAT16]
    assert {f"another precision: not {each.value}" for each in recaptured} <= set(lines)
    # Weights of 32 MiB do not fit into 8 MiB, nor does half of that; the next larger card that is shipped holds it.
    step = with_storage(chain(4), BufferKind.WEIGHTS, 32 * MIB)
    recaptured: list[Precision] = []
    first, precision, card = advice_of(asked(CapturedModel(step), 8 * MIB), recaptured)
    assert first.startswith("neither a smaller batch nor another policy: 32.0 MiB of parameters and 12 B of their grad")
    assert precision.startswith("another precision: not bfloat16, with 16.0 MiB")
    assert card.startswith("another card: ")
    assert recaptured == []
    # An optimizer without states is advised.
    step = with_storage(chain(4), BufferKind.OPTIMIZER_STATE, 32 * MIB)
    assert advice_of(asked(CapturedModel(step), 8 * MIB))[1].startswith(
        "another optimizer: without states, as of sgd, 24 B"
    )
    # A step of 35 GiB of weights: the smallest shipped card with more is that of 40 GB, for a V100 has 31.7.
    card = format_bytes(load_profile(PROFILE.with_name("a100_40gb.yaml")).server.gpu.memory_bytes)
    for gib, found in ((35, f"a100_40gb, with {card}, holds it"), (1000, "none that comes with vdnnsim holds it")):
        step = with_storage(chain(4), BufferKind.WEIGHTS, gib * 2**30)
        lines = advice_of(asked(CapturedModel(step), 24 * 2**30))
        assert lines[-1] == f"another card: {found} under pytorch(p)"
