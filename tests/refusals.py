"""What is refused, and with which message."""

from collections.abc import Callable
from typing import ParamSpec

import pytest

Given = ParamSpec("Given")


def refusal(kind: type[Exception], call: Callable[Given, object], *given: Given.args, **named: Given.kwargs) -> str:
    """Return the message, of one line, with which a call is refused."""
    with pytest.raises(kind) as caught:
        call(*given, **named)
    message = str(caught.value)
    assert message.splitlines() == [message]
    return message
