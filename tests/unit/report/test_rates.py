from vdnnsim.dnn.samples import IMAGE, Sample
from vdnnsim.report.rates import per_second, rate_text

TEXT = Sample("text", "token", 1024)


def test_a_rate_of_texts_is_one_of_tokens_too() -> None:
    """38 x 1024 = 38912."""
    assert rate_text(TEXT, 38.0) == "38.00 texts/s, 38912 tokens/s"
    assert rate_text(IMAGE, 1569.0) == "1569 images/s"


def test_units() -> None:
    assert (per_second(TEXT), per_second(IMAGE)) == ("texts/s", "images/s")
