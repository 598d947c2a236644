from vdnnsim.dnn.shapes import MapShape


def test_a_vector_is_a_map_of_one_row_and_one_column() -> None:
    assert MapShape(7) == MapShape(7, 1, 1)


def test_a_shape_is_written_by_its_sizes_and_has_their_product_of_elements() -> None:
    """3 channels of 4 rows of 5 elements: 3 x 20 = 60."""
    assert (str(MapShape(3, 4, 5)), MapShape(3, 4, 5).elements) == ("3x4x5", 60)
