"""What the executor computes on a GPU: the CPU's tests there, with cuDNN's plans where its package is installed."""

import pytest

from tests.calibration.executor.test_executor import (
    test_a_copy_that_is_kept_serves_two_prefetches,
    test_a_dynamic_policy_in_little_memory,
    test_a_gradient_released_in_the_middle_is_kept,
    test_an_inference_has_a_loss_and_no_gradients,
    test_each_policy_computes_what_pytorch_does,
    test_maps_whose_channels_lie_last,
    test_narrow_elements,
    test_plans_take_turns_on_one_executor,
    test_weights_after_an_update,
)
from tests.calibration.executor.test_executor_poisoned import (
    test_an_operation_left_out_changes_the_gradients,
    test_nothing_is_read_too_early_or_late,
)

__all__ = [
    "test_a_copy_that_is_kept_serves_two_prefetches",
    "test_a_dynamic_policy_in_little_memory",
    "test_a_gradient_released_in_the_middle_is_kept",
    "test_an_inference_has_a_loss_and_no_gradients",
    "test_an_operation_left_out_changes_the_gradients",
    "test_each_policy_computes_what_pytorch_does",
    "test_maps_whose_channels_lie_last",
    "test_narrow_elements",
    "test_nothing_is_read_too_early_or_late",
    "test_plans_take_turns_on_one_executor",
    "test_weights_after_an_update",
]

pytestmark = [pytest.mark.gpu, pytest.mark.pretend, pytest.mark.arithmetic]
