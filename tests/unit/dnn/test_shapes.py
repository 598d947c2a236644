from vdnnsim.dnn.shapes import MapShape


def test_a_map_has_channels_times_height_times_width_elements() -> None:
    """3 channels of 4 rows of 5 elements: 3 x 20 = 60."""
    assert MapShape(3, 4, 5).elements == 60


def test_a_vector_is_a_map_of_one_row_and_one_column() -> None:
    assert MapShape(7) == MapShape(7, 1, 1)
    assert MapShape(7).elements == 7


def test_a_shape_reads_as_people_write_it() -> None:
    assert str(MapShape(64, 55, 27)) == "64x55x27"
