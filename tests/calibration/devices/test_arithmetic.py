from contextlib import suppress

import pytest
import torch

from calibration.devices.arithmetic import arithmetic


def settings_of_pytorch() -> tuple[object, ...]:
    cudnn = torch.backends.cudnn
    return (
        torch.backends.cuda.matmul.fp32_precision,
        cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
        cudnn.rnn.fp32_precision,  # type: ignore[attr-defined]
        cudnn.deterministic,
        cudnn.benchmark,
    )


@pytest.mark.parametrize(("tf32", "precision"), [(True, "tf32"), (False, "ieee")])
def test_settings_hold_inside_and_are_restored_whatever_happens(
    tf32: bool,  # noqa: FBT001  # a parameter of the test
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    before = settings_of_pytorch()
    with suppress(ValueError), arithmetic(tf32=tf32):
        assert settings_of_pytorch() == (precision, precision, precision, True, False)
        raise ValueError
    assert settings_of_pytorch() == before


def test_old_tf32_settings_can_be_read_afterwards() -> None:
    """PyTorch raises where the old and the new settings contradict each other; put back, they do not."""
    with arithmetic(tf32=False):
        pass
    assert torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
