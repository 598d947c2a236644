"""Views over flat bytes, and their initial content."""

import pytest
import torch

from calibration.kernels.operands import fill_input, fill_state, fill_weights, labels
from calibration.kernels.tensors import Part, carve, map_view, weight_views
from tests.calibration.kernels.cases import three_readers
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.networks.tiny import tiny_residual
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload


@pytest.mark.parametrize(("channels_last", "layout"), [(False, torch.contiguous_format), (True, torch.channels_last)])
@pytest.mark.parametrize("shape", [MapShape(3, 4, 5), MapShape(6), MapShape(1, 4, 4)])
def test_a_map_has_strides_as_pytorch_gives(
    shape: MapShape, layout: torch.memory_format, *, channels_last: bool
) -> None:
    """Where a size is 1 its stride means nothing to a loop, but to aten's guess of the layout."""
    flat = torch.zeros(shape.elements * 2 * 4 + 512, dtype=torch.uint8)
    view = map_view(flat, shape, 2, torch.float32, channels_last=channels_last)
    likewise = torch.empty(2, shape.channels, shape.height, shape.width).to(memory_format=layout)
    assert (view.shape, view.stride()) == (likewise.shape, likewise.stride())
    assert view.data_ptr() == flat.data_ptr()


def test_weights_are_the_filters_then_the_bias() -> None:
    """Layer `conv` has 6 filters of 3 x 3 x 3 and 6 biases: 168 weights, the last 6 of them the bias."""
    layer = three_readers().layers[0]
    flat = torch.arange(168.0)
    weights, bias = weight_views(layer, flat, channels_last=False)
    assert weights.shape == (6, 3, 3, 3)
    assert bias is not None
    assert bias.tolist() == [162, 163, 164, 165, 166, 167]
    last, _ = weight_views(layer, flat, channels_last=True)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert last[0, :, 0, 0].tolist() == [0, 1, 2]


def test_parts_of_a_workspace_lie_aligned_and_apart() -> None:
    """3 numbers of 2 bytes and 2 of 8 take 22 bytes, the wide ones first: the narrow ones begin at 16."""
    parts = (Part((3,), torch.bfloat16), Part((1, 2, 1, 1), torch.int64, channels_last=True))
    assert sum(part.nbytes for part in parts) == 22
    workspace = torch.zeros(22, dtype=torch.uint8)
    narrow, wide = carve(workspace, parts)
    assert narrow.data_ptr() - workspace.data_ptr() == 16
    assert (wide.data_ptr(), wide.shape, wide.stride()) == (workspace.data_ptr(), (1, 2, 1, 1), (2, 1, 2, 2))


def test_initial_content_depends_on_seed_and_name_alone() -> None:
    first, *_, last = [layer for layer in tiny_residual().layers if layer.parameters]

    def weights(layer: Layer, seed: int) -> torch.Tensor:
        flat = torch.empty(layer.parameters)
        fill_weights(layer, flat, seed, channels_last=False)
        return flat

    drawn = weights(first, 0), weights(last, 0)
    assert torch.equal(weights(last, 0), drawn[1])
    assert torch.equal(weights(first, 0), drawn[0])
    assert not torch.equal(weights(first, 1), drawn[0])
    # Layouts and narrow types hold the same numbers.
    layer = three_readers().layers[0]
    views = []
    for channels_last in (False, True):
        flat = torch.empty(layer.parameters)
        fill_weights(layer, flat, 0, channels_last=channels_last)
        views.append(weight_views(layer, flat, channels_last=channels_last)[0])
    assert torch.equal(*views)
    contiguous = torch.empty(2, 3, 4, 5)
    by_channels, narrow = contiguous.to(memory_format=torch.channels_last), contiguous.bfloat16()
    for batch in (contiguous, by_channels, narrow):
        fill_input(batch, 0)
    assert torch.equal(contiguous, by_channels)
    assert torch.equal(contiguous.bfloat16(), narrow)


def test_initial_weights_states_and_labels() -> None:
    layer = three_readers().layers[0]
    states = [torch.empty(layer.parameters) for _ in range(2)]
    for number, state in enumerate(states):
        fill_state(layer, number, state, 0)
    assert states[0].min() < 0
    assert states[1].min() >= 0
    assert not torch.equal(states[0].square(), states[1])
    # Labels are classes.
    classes = labels(Workload(three_readers(), 200), 0)
    assert sorted(set(classes.tolist())) == [0, 1, 2, 3, 4]
    # He et al.: variance 2 / (inputs of one output), of 32 filters of 75 weights; allowed are 5 standard errors. The
    # variance of n normal numbers has a relative standard error of the root of 2 / n.
    layer = next(layer for layer in tiny_residual().layers if layer.name == "conv")
    flat = torch.empty(layer.parameters)
    fill_weights(layer, flat, 0, channels_last=False)
    relative_error = (2 / flat.numel()) ** 0.5
    assert float(flat.var()) == pytest.approx(2 / (3 * 5 * 5), rel=5 * relative_error)
