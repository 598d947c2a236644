import pytest

from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.cost.workspace_fit import Elements, WorkspaceRule, fit_workspace
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.units import ElementType


def convolution(batch_size: int, channels: int, side: int, filters: int, window: int = 3) -> KernelShape:
    pad = window // 2
    operator = f"conv {filters} {window}x{window} stride 1x1 padding {pad}x{pad} bias"
    x = MapShape(channels, side, side)
    return KernelShape(operator, Phase.FORWARD, batch_size, ElementType.FLOAT32, (x,), "")


SHAPES = [convolution(8, 3, 32, 16), convolution(8, 16, 32, 24), convolution(4, 24, 8, 64), convolution(2, 64, 8, 8, 1)]


def test_the_elements_of_kernels() -> None:
    """X is 8 x 3 x 32 x 32, Y 8 x 16 x 32 x 32, W 16 x 3 x 3 x 3, and 27 rows of 1024 columns for each image."""
    assert Elements.of(SHAPES[0]) == Elements(24_576, 131_072, 432, 8 * 27 * 1024, 8)
    x, float32 = MapShape(4, 6, 6), ElementType.FLOAT32
    product = KernelShape("fc 10 bias", Phase.FORWARD, 2, float32, (x,), "")
    assert Elements.of(product) == Elements(288, 20, 1440, 0, 2)
    assert Elements.of(KernelShape("concat", Phase.FORWARD, 2, float32, (x, x), "")) == Elements(576, 576, 0, 0, 2)
    update = KernelShape("sgd", Phase.UPDATE, 1, float32, (MapShape(50),), "")
    assert Elements.of(update) == Elements(0, 0, 50, 0, 1)


@pytest.mark.parametrize(
    ("quantity", "bytes_each"),
    [
        ("nothing", 0.0),
        ("one", 4096.0),
        ("Y", 8.0),
        ("columns of an image", 4.0),
        ("X and Y", 4.0),
        ("X, Y and W", 2.0),
    ],
)
def test_what_a_workspace_is_a_multiple_of_is_found(quantity: str, bytes_each: int) -> None:
    rule = WorkspaceRule(quantity, bytes_each)
    assert fit_workspace([(shape, rule.workspace_bytes(shape)) for shape in SHAPES]) == rule


def test_one_odd_workspace_does_not_hide_the_rule() -> None:
    """Three are 4 bytes for each element of Y, one is far above: 4 bytes an element still meet most."""
    rule = WorkspaceRule("Y", 4.0)
    measured = [(shape, rule.workspace_bytes(shape)) for shape in SHAPES]
    measured[1] = (SHAPES[1], 10**9)
    assert fit_workspace(measured) == rule
    # Without a measurement nothing is taken.
    assert fit_workspace([]).workspace_bytes(SHAPES[0]) == 0


def test_a_known_workspace_grows_with_the_rule() -> None:
    """Four times the images have four times Y, whatever each element takes; what no image decides stays."""
    small, large = convolution(8, 3, 32, 16), convolution(32, 3, 32, 16)
    assert WorkspaceRule("Y", 4.0).scaled_bytes(large, small, 1000) == 4000
    assert WorkspaceRule("columns of an image", 4.0).scaled_bytes(large, small, 1000) == 1000
    assert WorkspaceRule("nothing", 0.0).scaled_bytes(large, small, 0) == 0
