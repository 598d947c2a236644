from enum import Enum

import msgspec
import pytest

from tests.refusals import refusal
from vdnnsim.errors import PolicyError
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.base import Base
from vdnnsim.policies.iterations.layerwise import PrefetchSearch
from vdnnsim.policies.registry import describe_options, known_policies, resolve_policy
from vdnnsim.policies.vdnn import VdnnAll, VdnnDyn

TYPES = known_policies()


def test_short_forms_and_mappings() -> None:
    """The paper's notation; without a rule the options have their defaults."""
    assert resolve_policy("vdnn_all(m)", TYPES) == VdnnAll(algorithms=Algorithms.MEMORY_OPTIMAL)
    assert resolve_policy("vdnn_all ( m )", TYPES) == VdnnAll(algorithms=Algorithms.MEMORY_OPTIMAL)
    assert resolve_policy(" base ", TYPES) == Base(algorithms=Algorithms.PERFORMANCE_OPTIMAL)
    assert resolve_policy("vdnn_dyn", TYPES) == VdnnDyn()
    # Options that differ from their defaults show in the label, the rule for algorithms always.
    policy = resolve_policy({"policy": "vdnn_all", "algorithms": "m", "prefetch_search": "fig10_without_pool"}, TYPES)
    assert policy == VdnnAll(algorithms=Algorithms.MEMORY_OPTIMAL, prefetch_search=PrefetchSearch.FIG10_WITHOUT_POOL)
    assert policy.label == "vdnn_all(m, prefetch_search=fig10_without_pool)"
    assert resolve_policy({"policy": "vdnn_dyn"}, TYPES).label == "vdnn_dyn"


@pytest.mark.parametrize("name", TYPES)
def test_a_label_resolves_to_its_policy(name: str) -> None:
    """With every option at another value than its default: another choice or truth value, one more, 20 us or MiB."""
    texts = {"35 us": "20 us", "whole": "20 MiB", "auto": "20 MiB", "60 s": "30 s"}
    others: dict[str, object] = {}
    for option in msgspec.structs.fields(TYPES[name]):
        if isinstance(option.default, bool):
            others[option.name] = not option.default
        elif isinstance(option.default, Enum):
            others[option.name] = next(each for each in type(option.default) if each is not option.default).value
        else:
            others[option.name] = option.default + 1 if isinstance(option.default, int) else texts[option.default]
    policy = resolve_policy({"policy": name, **others}, TYPES)

    assert all(getattr(policy, option.name) != option.default for option in msgspec.structs.fields(TYPES[name]))
    assert resolve_policy(policy.label, TYPES) == policy


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vdnn_al(m)", f"'vdnn_al' is not a policy; did you mean 'vdnn_all'? ({', '.join(TYPES)}); --policy-module"),
        ("base(m", "found 'base(m', expected a policy"),
        ("swap(p", "one with a comma needs quotes"),
        (7, "found 7, expected a policy"),
        ({"algorithms": "m"}, "expected a policy as vdnn_all(m) or a mapping with the key policy"),
        ("base(q)", "base: algorithms: 'q' is not one of its choices"),
        ("base()", "base: algorithms: '' is not one of its choices"),
        ("swap(p, m)", "found 'swap(p, m)', expected a policy"),
        ("swap(interval=1, interval=2)", "found 'swap(interval=1, interval=2)', expected a policy"),
        ("swap(p, interval=two)", "swap: interval: found 'two', expected an integer, as 3"),
        ("swap(p, stagger=maybe)", "swap: stagger: found 'maybe', expected true or false, as false"),
        ("vdnn_dyn(m)", "vdnn_dyn: 'algorithms' is not an option; expected "),
        ({"policy": "vdnn_all", "prefetch": "fig10"}, "'prefetch' is not an option; did you mean 'prefetch_search'?"),
        ({"policy": "vdnn_all", "prefetch_search": 10}, "prefetch_search: found 10, expected one of fig10, fig10_w"),
        ("checkpoint(segments=-1)", "checkpoint: segments: found -1, expected a number of segments"),
        ("accumulate(steps=-1)", "accumulate: steps: found -1, expected a number of steps"),
        ("vdnn_all(chunk=16)", "vdnn_all: chunk: found '16', expected a number with one of the units B, kB, MB, "),
        ("vdnn_all(chunk=0 B)", "vdnn_all: chunk: found '0 B', expected at least a byte, or whole"),
    ],
)
def test_refusals(spec: object, message: str) -> None:
    assert message in refusal(PolicyError, resolve_policy, spec, TYPES)


class _WithChoice(Base, frozen=True, kw_only=True):
    search: PrefetchSearch


def test_options_are_listed_with_their_values_default_first() -> None:
    """`base` and the rest of the paper's take (p) where nothing is said; the choices of Fig. 10 come in its order."""
    assert describe_options(TYPES["base"]) == "algorithms: p | m | tensorflow"
    of_vdnn = "algorithms: p | m | tensorflow, prefetch_search: fig10 | fig10_without_pool, chunk: whole"
    assert describe_options(VdnnAll) == of_vdnn
    assert describe_options(_WithChoice) == "algorithms: p | m | tensorflow, search: fig10 | fig10_without_pool"
    assert describe_options(TYPES["page_migration"]) == "algorithms: p | m | tensorflow, page_latency: 35 us"
