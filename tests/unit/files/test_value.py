import math
from enum import Enum

import pytest

from tests.refusals import refusal
from vdnnsim.errors import ProfileError, ScenarioError
from vdnnsim.files.value import Entry, YamlValue


class Colour(Enum):
    RED = "red"
    GREEN = "green"


def entry(value: YamlValue) -> Entry:
    return Entry("x.yaml", "a.b", value, ProfileError)


def test_members_and_items_are_entries_with_their_key_path() -> None:
    members = entry({"c": 1, "d": 2}).members(("c",), ("d",))
    assert [(member.path, member.value) for member in members.values()] == [("a.b.c", 1), ("a.b.d", 2)]
    (odd,) = entry({"two\nlines": 1}).named_members("names").values()
    assert odd.path == r"a.b.'two\nlines'"
    (top,) = Entry("x.yaml", "", {"c": 1}, ProfileError).named_members("names").values()
    assert top.path == "c"
    assert [(item.path, item.value) for item in entry([1, 2]).items("numbers")] == [("a.b[0]", 1), ("a.b[1]", 2)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"c": 1, "e": 2}, "'e' is not a key; expected one of c, d"),
        ({"d": 1}, "'c' is missing; required are c"),
        (None, "found nothing, expected a mapping with the keys c, d"),
        ([], "found an empty list, expected a mapping with the keys c, d"),
        ({"x" * 200: 1}, f"'{'x' * 80}...' is not a key; expected one of c, d"),
    ],
)
def test_a_mapping_has_the_keys_that_it_may_have(value: YamlValue, message: str) -> None:
    assert refusal(ProfileError, entry(value).members, ("c",), ("d",)) == f"x.yaml: a.b: {message}"


@pytest.mark.parametrize(("value", "found"), [([], "an empty list"), ({"a": 1}, "a mapping"), (1.5, "1.5")])
def test_a_list_has_an_item(value: YamlValue, found: str) -> None:
    with pytest.raises(ProfileError, match=rf"^x\.yaml: a\.b: found {found}, expected a list of policies$"):
        entry(value).items("policies")
    with pytest.raises(ProfileError, match=r"^x\.yaml: a\.b: found true, expected a mapping of parameters$"):
        entry(True).named_members("parameters")  # noqa: FBT003


def test_text_integers_and_choices() -> None:
    assert entry("  Titan X\n").text() == "Titan X"
    for line in ("", " \n", "two\nlines", "\ud800", "x" * 1001):
        with pytest.raises(ProfileError, match=r": found '.*', expected one line of 1 to 1000 printable characters$"):
            entry(line).text()
    with pytest.raises(ProfileError, match=r"found 12, expected text .*into quotes if it looks like a number"):
        entry(12).text()
    # An integer is one within its limits.
    assert (entry(1).integer(1, 9), entry(9).integer(1, 9)) == (1, 9)
    others: tuple[tuple[YamlValue, str], ...] = ((0, "0"), (10, "10"), ("5", "'5'"), (5.0, "5.0"), (True, "true"))
    for value, found in (*others, (None, "nothing"), (math.nan, "nan")):
        with pytest.raises(ProfileError, match=f"found {found}, expected an integer from 1 to 9$"):
            entry(value).integer(1, 9)
    # A choice is a member of its enum.
    assert entry("green").choice(Colour, "a colour") is Colour.GREEN
    with pytest.raises(ProfileError, match=r"a\.b: 'gren' is not a colour; did you mean 'green'"):
        entry("gren").choice(Colour, "a colour")
    with pytest.raises(ProfileError, match=r"a\.b: found a list, expected a colour"):
        entry([1]).choice(Colour, "a colour")


@pytest.mark.parametrize(("version", "found"), [(2, "2"), ("1", "'1'"), (True, "true"), (1.0, "1.0")])
def test_another_schema_version_is_refused(version: YamlValue, found: str) -> None:
    with pytest.raises(ScenarioError, match=rf"^x\.yaml: schema_version: found {found}, expected 1, the version that"):
        Entry("x.yaml", "", {"schema_version": version}, ScenarioError).check_schema_version(1)
    for other in ({"schema_version": 1}, {"a": 1}, [1]):
        Entry("x.yaml", "", other, ScenarioError).check_schema_version(1)  # type: ignore[arg-type]  # its keys are refused
