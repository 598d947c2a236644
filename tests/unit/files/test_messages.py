from pathlib import Path

import pytest

from vdnnsim.files.messages import describe, file_name, not_one_of, one_line, printable, spelled_as


def test_file_names_and_foreign_messages_are_shown_on_one_line() -> None:
    """A byte that is no UTF-8, and a line end; blanks stay."""
    assert file_name(Path("scenarios/my question.yaml")) == "scenarios/my question.yaml"
    assert file_name(Path("two\nlines.yaml")) == r"'two\nlines.yaml'"
    assert one_line("two\n  lines \a") == r"two lines \x07"
    assert printable(" bad\udcff  \n") == " bad\\udcff  \\n"


@pytest.mark.parametrize(
    ("found", "names", "message"),
    [
        ("gren", ["red", "green"], "'gren' is not a colour; did you mean 'green'? (red, green)"),
        ("gren", ["green"], "'gren' is not a colour; did you mean 'green'?"),
        ("bert", ["overfeat"], "'bert' is not a colour; expected overfeat"),
        ("foo", ["red", "green"], "'foo' is not a colour; expected one of red, green"),
        ("foo", ["green"], "'foo' is not a colour; expected green"),
        ("foo", [], "'foo' is not a colour; expected none"),
        ("g" * 200, ["g" * 60], f"'{'g' * 80}...' is not a colour; did you mean '{'g' * 60}'?"),
    ],
)
def test_only_a_name_that_is_near_is_offered(found: str, names: list[str], message: str) -> None:
    """Near is a name that shares more than half of the characters of both.

    `gren` and `green` have 8 of 9 in common, `bert` and `overfeat` 6 of 12.
    """
    assert not_one_of(found, names, "a colour") == message


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "nothing"), (True, "true"), (7, "7"), ("7", "'7'"), ({}, "an empty mapping"), ([0], "a list")],
)
def test_a_value_is_shown_in_the_words_of_yaml(value: object, shown: str) -> None:
    assert describe(value) == shown


def test_long_lists_of_names_are_cut() -> None:
    """100 names of 8 characters; 50 of them and their commas are the 500 characters that a message takes."""
    message = not_one_of("other", [f"name{number:04}" for number in range(100)], "a name")
    assert message.startswith("'other' is not a name; expected one of name0000, name0001, ")
    assert message.endswith(", name0049 and 50 more")
    # Spelled otherwise, begun, or mistyped; `h100` is the beginning of one, though `h200` has as many letters.
    cards = ["h200", "h100_sxm", "rtx_4090"]
    assert spelled_as("RTX 4090", cards) == "rtx_4090"
    assert spelled_as("torchvision:vgg16", ["vgg16", "vgg16_torchvision"]) == "vgg16_torchvision"
    assert spelled_as("rtx 409", cards) is None
    assert "did you mean 'h100_sxm'?" in not_one_of("h100", cards, "a card")
    assert "did you mean 'rtx_4090'?" in not_one_of("RTX_409O", cards, "a card")
