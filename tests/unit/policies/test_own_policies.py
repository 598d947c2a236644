"""Policies of users: modules that are imported, packages that are installed, and what is wrong with them."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from tests.refusals import refusal
from tests.toy import toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.errors import PolicyError
from vdnnsim.policies import registry
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import make_plan, make_plans
from vdnnsim.policies.registry import PolicyTypes, describe_options, known_policies, resolve_policy

TYPES = known_policies()
WORKLOAD = toy_workload(toy_chain(1))
SETTING = toy_setting(WORKLOAD, toy_costs(WORKLOAD, {}))
Written = Callable[[str], PolicyTypes]

OWN = """
from typing import ClassVar
from vdnnsim.policies.base import Base

class Mine(Base, frozen=True, kw_only=True):
    name: ClassVar[str] = "{label}"
    summary: ClassVar[str] = "keeps everything, under a name of its own"

    count: int = 1
"""
COMPLETE = """
from typing import ClassVar
from vdnnsim.errors import PolicyError
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import DecidedBy, Policy

class Mine(Policy, frozen=True, kw_only=True):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "of its own"
    plan = Base.plan
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    """Writes the module `own_policy` and returns all policies, its own among them."""

    def write(text: str) -> PolicyTypes:
        (tmp_path / "own_policy.py").write_text(text)
        return known_policies(["own_policy", "own_policy"])

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    sys.modules.pop("own_policy", None)


def without(member: str) -> str:
    """Return a module whose policy lacks something."""
    return "\n".join(line for line in COMPLETE.splitlines() if not line.startswith(f"    {member}")) + "\n"


def test_a_module_adds_the_policies_that_it_defines(written: Written) -> None:
    """Not those that it imports; named twice, it is one module."""
    types = written(OWN.format(label="mine"))

    assert set(types) == set(TYPES) | {"mine"}
    assert resolve_policy({"policy": "mine", "count": 2}, types).label == "mine(p, count=2)"
    assert make_plan(resolve_policy("mine", types), SETTING).operations == Base().plan(SETTING).operations


NAME, SUMMARY = "class Mine: expected `name:", "class Mine: expected `summary:"


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "holds no subclass of vdnnsim.policies.interface.Policy"),
        (OWN.format(label="base"), "'base' is taken by vdnnsim.policies.base"),
        ("import no_such_module", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise ValueError('two\\nlines')", "cannot be imported: ValueError: two lines"),
        ("raise ValueError", "cannot be imported: ValueError"),
        ("import sys\nsys.exit(0)", "sys.exit(0)"),
        (without("name"), NAME),
        (OWN.format(label="a b"), NAME),
        (OWN.format(label="mine").replace("ClassVar[str]", "str"), NAME),
        (without("summary"), SUMMARY),
        (OWN.format(label="mine").replace("keeps", "\\n"), SUMMARY),
        (COMPLETE + "    decided_by = 'costs'\n", "class Mine: expected `decided_by:"),
        (COMPLETE.replace("Base.plan", "3"), "class Mine: has no method plan(self, setting)"),
        (without("plan"), "class Mine: has no method plan(self, setting)"),
    ],
)
def test_a_module_that_is_refused_is_named_in_one_line(written: Written, text: str, fragment: str) -> None:
    with pytest.raises(PolicyError, match=r"^policy module 'own_policy': [^\n]*$") as failure:
        written(text)
    assert fragment in str(failure.value)


@pytest.mark.parametrize("module", ["mine.py", "./mine", "mine/", "", "1st", "mine.", "a b", "\udcff"])
def test_a_module_is_named_as_in_import(module: str) -> None:
    """Nothing is imported: of `mine.py` Python would import `mine` before it complains."""
    with pytest.raises(PolicyError, match="expected the name of a module") as failure:
        known_policies([module])
    assert repr(module) in str(failure.value)


@pytest.mark.parametrize(
    ("member", "body", "message", "frames"),
    [
        ("plan", "return None", "mine: plan: found nothing, expected a TrainingPlan", 0),
        ("plan", "return {}", "mine: plan: found an empty mapping, expected a TrainingPlan", 0),
        ("plan", "raise KeyError('x')", "mine: plan: KeyError: 'x'", 1),
        ("plan", "raise PolicyError('only ideal memory')", "mine: plan: only ideal memory", 0),
        ("plan", "raise PolicyError('mine: only ideal memory')", "mine: only ideal memory", 0),
        ("plans", "return None", "mine: plans: found nothing, expected a tuple", 0),
        ("plans", "return ()", "mine: plans: found 0 plans, expected 2", 0),
        ("plans", "return (Base().plan(setting),)", "mine: plans: found 1 plans, expected 2", 0),
        ("plans", "return (Base().plan(setting), 3)", "mine: plans: found 3, expected a TrainingPlan", 0),
        ("plans", "return [][0]", "mine: plans: IndexError: list index out of range", 1),
    ],
)
def test_a_failure_names_its_policy(written: Written, member: str, body: str, message: str, frames: int) -> None:
    """An exception that the author did not foresee comes with its traceback in a note; a refusal is one line."""
    text = without("plan") if member == "plan" else COMPLETE
    policy = resolve_policy("mine", written(f"{text}    def {member}(self, setting):\n        {body}\n"))

    with pytest.raises(PolicyError) as failure:
        (make_plan if member == "plan" else make_plans)(policy, replace(SETTING, gpus=2))

    assert str(failure.value).startswith(message)
    notes = getattr(failure.value, "__notes__", [])
    assert len(notes) == frames
    assert all("own_policy.py" in note for note in notes)


@pytest.mark.parametrize(
    ("declared", "looked_at", "missing"),
    [
        ("costs", "costs", None),
        ("costs", "limits", "MEMORY"),
        ("costs", "trials", "TRIALS"),
        ("memory", "limits", None),
        ("memory", "trials", "TRIALS"),
        ("memory", "run_on_all_gpus([None])", "TRIALS"),
        ("trials", "trials", None),
        (None, "limits", None),
        (None, "trials", None),
    ],
)
def test_a_policy_sees_only_the_inputs_that_it_declares(
    written: Written, declared: str | None, looked_at: str, missing: str | None
) -> None:
    """Whatever else it looks at is refused with the line that is missing; one that declares nothing sees all."""
    text = without("plan")
    text += f"    def plan(self, setting):\n        setting.{looked_at}\n        return Base().plan(setting)\n"
    if declared is not None:
        text += f"    decided_by: ClassVar[DecidedBy] = DecidedBy({declared!r})\n"
    policy = resolve_policy("mine", written(text))

    if missing is None:
        assert make_plans(policy, SETTING) == (Base().plan(SETTING),)
    else:
        with pytest.raises(PolicyError, match=rf"^mine: plan: found a look at setting\.\w+, .* DecidedBy.{missing}$"):
            make_plans(policy, SETTING)


def test_policies_of_installed_packages(monkeypatch: pytest.MonkeyPatch, written: Written) -> None:
    written(OWN.format(label="offered"))
    offered = EntryPoint("offered", "own_policy:Mine", "vdnnsim.policies")
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([offered]).select(group=group))

    assert resolve_policy("offered", known_policies()).label == "offered(p)"


OPTIONS = """
    count: int = 1
    share: float = 0.5
    careful: bool = True
    text: str
    several: tuple[int, ...] = ()

    def __post_init__(self):
        if self.text == "trouble":
            raise KeyError("of its own")
"""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": "two"}, "count: found 'two', expected an integer, as 1"),
        ({"count": True}, "count: found true, expected an integer, as 1"),
        ({"count": 1.5}, "count: found 1.5, expected an integer, as 1"),
        ({"share": None}, "share: found nothing, expected a number, as 0.5"),
        ({"share": False}, "share: found false, expected a number, as 0.5"),
        ({"careful": 1}, "careful: found 1, expected true or false, as true"),
        ({"text": 7}, "text: found 7, expected text"),
        ({"several": 7}, "Expected `array`, got `int` - at `$.several`"),
        ({}, "Object missing required field `text`"),
        ({"text": "trouble"}, "KeyError: 'of its own'"),
    ],
)
def test_options_of_plain_types(written: Written, options: dict[str, object], message: str) -> None:
    types = written(COMPLETE + OPTIONS)

    assert describe_options(types["mine"]) == "count: 1, share: 0.5, careful: true, text: ..., several: ()"
    assert resolve_policy({"policy": "mine", "text": "t", "share": 1}, types).label == "mine(share=1.0, text=t)"
    assert refusal(PolicyError, resolve_policy, {"policy": "mine", **options}, types) == f"mine: {message}"
