"""Policies of users: modules that are imported, packages that are installed, and what is wrong with them."""

import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from tests.toy import toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.errors import PolicyError
from vdnnsim.policies import registry
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import make_plan, make_plans
from vdnnsim.policies.registry import describe_options, known_policies, resolve_policy

TYPES = known_policies()

OWN_POLICY = """
from typing import ClassVar
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Setting

class {name}(Base, frozen=True, kw_only=True):
    name: ClassVar[str] = "{label}"
    summary: ClassVar[str] = "keeps everything, under a name of its own"

    count: int = 1
"""


COMPLETE_POLICY = """
from typing import ClassVar
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy

class Mine(Policy, frozen=True, kw_only=True):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "of its own"
    plan = Base.plan
"""
DECIDED_BY = "expected `decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS`, MEMORY or TRIALS"
NAME = 'expected `name: ClassVar[str] = "..."`, of letters, digits and _'
PLAN = "has no method plan(self, setting) that returns a TrainingPlan"
SUMMARY = 'expected `summary: ClassVar[str] = "..."`, of one line'


def without(member: str) -> str:
    """Return a module whose policy lacks something."""
    return "\n".join(line for line in COMPLETE_POLICY.splitlines() if not line.startswith(f"    {member}"))


def test_a_policy_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module named on the command line adds the policies that it defines, not those that it imports."""
    (tmp_path / "own_policy.py").write_text(OWN_POLICY.format(name="Mine", label="mine"))
    monkeypatch.syspath_prepend(tmp_path)

    types = known_policies(["own_policy"])

    assert set(types) == set(TYPES) | {"mine"}
    assert resolve_policy({"policy": "mine", "count": 2}, types).label == "mine(p, count=2)"
    del sys.modules["own_policy"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no subclass of vdnnsim.policies.interface.Policy"),
        (OWN_POLICY.format(name="Mine", label="base"), "the name 'base' is taken by vdnnsim.policies.base"),
        ("import no_such_module", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise ValueError('two\\nlines')", "cannot be imported: ValueError: two lines"),
        ("raise ValueError", "cannot be imported: ValueError"),
        ("import sys\nsys.exit(0)", "cannot be imported: it calls sys.exit(0)"),
        (without("name"), f"class Mine: {NAME}"),
        (OWN_POLICY.format(name="Mine", label="a b"), f"class Mine: {NAME}"),
        (OWN_POLICY.format(name="Mine", label="mine").replace("ClassVar[str]", "str"), f"class Mine: {NAME}"),
        (without("summary"), f"class Mine: {SUMMARY}"),
        (OWN_POLICY.format(name="Mine", label="mine").replace("keeps", "\\n"), f"class Mine: {SUMMARY}"),
        (COMPLETE_POLICY + "    decided_by = 'costs'\n", f"class Mine: {DECIDED_BY}"),
        (COMPLETE_POLICY.replace("Base.plan", "3"), f"class Mine: {PLAN}"),
        (without("plan"), f"class Mine: {PLAN}"),
    ],
)
def test_modules_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    """Whatever is wrong with a user's module is one line that names the module."""
    (tmp_path / "bad_policy.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("bad_policy", None)

    with pytest.raises(PolicyError) as failure:
        known_policies(["bad_policy"])

    assert str(failure.value) == f"policy module 'bad_policy': {message}"
    sys.modules.pop("bad_policy", None)


@pytest.mark.parametrize("module", ["mine.py", "./mine", "mine/", "", "1st", "mine.", "a b", "\udcff"])
def test_a_module_is_named_as_in_import(module: str) -> None:
    """Nothing is imported: of `mine.py` Python would import `mine` before it complains."""
    with pytest.raises(PolicyError) as failure:
        known_policies([module])

    expected = "expected the name of a module as in Python's import, not of a file"
    assert str(failure.value) == f"policy module {module!r}: {expected}"


def test_the_same_module_twice_is_the_same_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twice_policy.py").write_text(COMPLETE_POLICY)
    monkeypatch.syspath_prepend(tmp_path)

    assert set(known_policies(["twice_policy", "twice_policy"])) == set(TYPES) | {"mine"}
    del sys.modules["twice_policy"]


@pytest.mark.parametrize(
    ("body", "message", "frames"),
    [
        ("return None", "mine: plan: found nothing, expected a TrainingPlan", 0),
        ("return {}", "mine: plan: found an empty mapping, expected a TrainingPlan", 0),
        ("raise KeyError('x')", "mine: plan: KeyError: 'x'", 1),
        ("raise PolicyError('only ideal memory')", "mine: plan: only ideal memory", 0),
        ("raise PolicyError('mine: only ideal memory')", "mine: only ideal memory", 0),
    ],
)
def test_a_plan_that_fails_names_its_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str, frames: int
) -> None:
    """What the author did not foresee comes with the frames in a note; what was refused on purpose is one line."""
    text = without("plan").replace("Base", "Base\nfrom vdnnsim.errors import PolicyError")
    (tmp_path / "failing_policy.py").write_text(f"{text}\n    def plan(self, setting):\n        {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    workload = toy_workload(toy_chain(1))
    setting = toy_setting(workload, toy_costs(workload, {}))

    for _ in range(2):
        policy = resolve_policy("mine", known_policies(["failing_policy"]))
        with pytest.raises(PolicyError) as failure:
            make_plan(policy, setting)

        assert str(failure.value) == message
        notes = getattr(failure.value, "__notes__", [])
        assert len(notes) == frames
        assert all("failing_policy.py" in note for note in notes)
    del sys.modules["failing_policy"]


@pytest.mark.parametrize(
    ("body", "message", "frames"),
    [
        ("return None", "mine: plans: found nothing, expected a tuple of TrainingPlans", 0),
        ("return ()", "mine: plans: found 0 plans, expected 2, one for each GPU", 0),
        ("return (Base().plan(setting),)", "mine: plans: found 1 plans, expected 2, one for each GPU", 0),
        ("return (Base().plan(setting), 3)", "mine: plans: found 3, expected a TrainingPlan", 0),
        ("return [][0]", "mine: plans: IndexError: list index out of range", 1),
    ],
)
def test_plans_that_fail_name_their_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str, frames: int
) -> None:
    """Where a policy plans GPU by GPU, what fails there is told as what fails in `plan`."""
    (tmp_path / "failing_plans.py").write_text(f"{COMPLETE_POLICY}\n    def plans(self, setting):\n        {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    workload = toy_workload(toy_chain(1))
    setting = replace(toy_setting(workload, toy_costs(workload, {})), gpus=2)

    policy = resolve_policy("mine", known_policies(["failing_plans"]))
    with pytest.raises(PolicyError) as failure:
        make_plans(policy, setting)

    assert str(failure.value) == message
    assert len(getattr(failure.value, "__notes__", [])) == frames
    del sys.modules["failing_plans"]


@pytest.mark.parametrize(
    ("declared", "looked_at", "message"),
    [
        ("costs", "costs", None),
        ("costs", "limits", "found a look at setting.limits, expected of a policy that takes it: {}MEMORY"),
        ("costs", "trials", "found a look at setting.trials, expected of a policy that takes it: {}TRIALS"),
        ("memory", "limits", None),
        ("memory", "trials", "found a look at setting.trials, expected of a policy that takes it: {}TRIALS"),
        (
            "memory",
            "run_on_all_gpus([None])",
            "found a look at setting.trials, expected of a policy that takes it: {}TRIALS",
        ),
        ("trials", "trials", None),
        (None, "limits", None),
        (None, "trials", None),
    ],
)
def test_a_policy_is_told_what_it_declares_to_be_decided_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str | None, looked_at: str, message: str | None
) -> None:
    """Whatever it looks at beside is refused with the line that is missing; one that declares nothing is told all."""
    text = without("plan").replace("import Policy", "import DecidedBy, Policy")
    text += f"\n    def plan(self, setting):\n        setting.{looked_at}\n        return Base().plan(setting)\n"
    if declared is not None:
        text += f"    decided_by: ClassVar[DecidedBy] = DecidedBy({declared!r})\n"
    (tmp_path / "declaring_policy.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    workload = toy_workload(toy_chain(1))
    setting = toy_setting(workload, toy_costs(workload, {}))
    policy = resolve_policy("mine", known_policies(["declaring_policy"]))

    if message is None:
        assert make_plans(policy, setting) == (Base().plan(setting),)
    else:
        with pytest.raises(PolicyError) as failure:
            make_plans(policy, setting)
        assert str(failure.value) == f"mine: plan: {message.format('decided_by: ClassVar[DecidedBy] = DecidedBy.')}"
    del sys.modules["declaring_policy"]


def test_a_plan_that_is_one_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = without("plan") + "\n    def plan(self, setting):\n        return Base().plan(setting)\n"
    (tmp_path / "good_policy.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    workload = toy_workload(toy_chain(1))
    setting = toy_setting(workload, toy_costs(workload, {}))

    assert make_plan(resolve_policy("mine", known_policies(["good_policy"])), setting) == Base().plan(setting)
    del sys.modules["good_policy"]


def test_policies_of_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package offers its policy behind an entry point of the group vdnnsim.policies."""
    (tmp_path / "offered_policy.py").write_text(OWN_POLICY.format(name="Offered", label="offered"))
    monkeypatch.syspath_prepend(tmp_path)
    offered = EntryPoint("offered", "offered_policy:Offered", "vdnnsim.policies")
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([offered]).select(group=group))

    assert resolve_policy("offered", known_policies()).label == "offered(p)"
    del sys.modules["offered_policy"]


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
        ({"count": "two"}, "mine: count: found 'two', expected an integer, as 1"),
        ({"count": True}, "mine: count: found true, expected an integer, as 1"),
        ({"count": 1.5}, "mine: count: found 1.5, expected an integer, as 1"),
        ({"share": None}, "mine: share: found nothing, expected a number, as 0.5"),
        ({"share": False}, "mine: share: found false, expected a number, as 0.5"),
        ({"careful": 1}, "mine: careful: found 1, expected true or false, as true"),
        ({"text": 7}, "mine: text: found 7, expected text"),
        ({"several": 7}, "mine: Expected `array`, got `int` - at `$.several`"),
        ({}, "mine: Object missing required field `text`"),
        ({"text": "trouble"}, "mine: KeyError: 'of its own'"),
    ],
)
def test_options_of_plain_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], message: str
) -> None:
    """A value of another type is refused with what would be right; an integer is a number, a truth value is none."""
    (tmp_path / "optional_policy.py").write_text(COMPLETE_POLICY + OPTIONS)
    monkeypatch.syspath_prepend(tmp_path)

    types = known_policies(["optional_policy"])

    assert describe_options(types["mine"]) == "count: 1, share: 0.5, careful: true, text: ..., several: ()"
    assert resolve_policy({"policy": "mine", "text": "t", "share": 1}, types).label == "mine(share=1.0, text=t)"
    with pytest.raises(PolicyError) as failure:
        resolve_policy({"policy": "mine", **options}, types)
    assert str(failure.value) == message
    del sys.modules["optional_policy"]
