import pytest

from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.samples import IMAGE, Sample, sample_of


@pytest.mark.parametrize(
    ("network", "sample"),
    [
        ("resnet50", IMAGE),
        ("gpt2_small", Sample("sequence", "token", 1024)),
        ("lstm_cnn", Sample("video", "frame", 16)),
        ("lstm_rnn", Sample("sequence", "element", 512)),
    ],
)
def test_a_network_reads_images_sequences_or_videos(network: str, sample: Sample) -> None:
    """LSTM-CNN reads frames of 227 x 227, LSTM-RNN vectors of 40 filter banks; GPT-2 looks its tokens up."""
    assert sample_of(build_network(network)) == sample
    tokens = Sample("sequence", "token", 1024)
    assert (tokens.names, tokens.length, tokens.tokens) == ("sequences", " of 1024 tokens", 1024)
    assert (IMAGE.names, IMAGE.length, IMAGE.tokens) == ("images", "", 0)
    assert Sample("video", "frame", 16).tokens == 0
