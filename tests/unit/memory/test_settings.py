"""Settings of PyTorch's allocator, as PYTORCH_ALLOC_CONF states them."""

import pytest

from tests.refusals import refusal
from vdnnsim.errors import InputError
from vdnnsim.memory.settings import AllocatorSettings, parse_settings
from vdnnsim.units import GIB, MIB


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", AllocatorSettings()),
        ("expandable_segments:True", AllocatorSettings(expandable_segments=True)),
        ("expandable_segments:False", AllocatorSettings()),
        (" max_split_size_mb : 128 , ", AllocatorSettings(max_split_size_mb=128)),
        ("roundup_power2_divisions:8", AllocatorSettings(roundup_power2_divisions=8)),
        (
            "roundup_power2_divisions:[256:1, 512:2,>:4],expandable_segments:True",
            AllocatorSettings(expandable_segments=True, roundup_power2_divisions=(("256", 1), ("512", 2), (">", 4))),
        ),
        (
            "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
            AllocatorSettings(garbage_collection_threshold=0.8, per_process_memory_fraction=0.9),
        ),
        ("cudnn_benchmark:True", AllocatorSettings(cudnn_benchmark=True)),
    ],
)
def test_settings_are_read_as_pytorch_reads_them(text: str, expected: AllocatorSettings) -> None:
    settings = parse_settings(text)

    assert settings == expected
    assert parse_settings(settings.words) == settings
    assert settings.value == f"pytorch({settings.words})"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expandable", "found 'expandable', expected settings as"),
        ("expandable_segments:true", "expandable_segments: found 'true'"),
        ("max_split_size_mb:19", "max_split_size_mb: found '19', expected an integer from 20"),
        ("max_split_size_mb:1.5", "max_split_size_mb: found '1.5'"),
        ("garbage_collection_threshold:1", "found '1', expected a number"),
        ("garbage_collection_threshold:much", "found 'much', expected a number"),
        ("per_process_memory_fraction:1.1", "found '1.1', expected a number from 0 to 1"),
        ("roundup_power2_divisions:3", "found '3', expected a power of two, or a list as"),
        ("roundup_power2_divisions:[256:3]", "found '256:3', expected a size in MiB"),
        ("roundup_power2_divisions:[200:2]", "found '200:2'"),
        ("roundup_power2_divisions:[256]", "found '256'"),
        ("expandable_segment:True", "did you mean 'expandable_segments'?"),
        ("backend:cudaMallocAsync", "'backend' is not a setting"),
    ],
)
def test_settings_that_pytorch_refuses_are_refused(text: str, message: str) -> None:
    assert message in refusal(InputError, parse_settings, text)


@pytest.mark.parametrize(
    ("divisions", "mib", "expected_mib"),
    [
        ("4", 1200 / 1024, 1280 / 1024),
        ("4", 1280 / 1024, 1280 / 1024),
        ("4", 1281 / 1024, 1536 / 1024),
        ("4", 5, 5),
        ("4", 5.5, 6),
        ("4", 8, 8),
        ("1", 5.5, 5.5),
        ("[4:2,>:8]", 3, 3),
        ("[4:2,>:8]", 2.5, 3),
        ("[4:2,>:8]", 5, 6),
        ("[4:2,>:8]", 8.5, 9),
        ("[4:2]", 9, 9),
        ("[>:2]", 1.25, 1.25),
        ("[>:2]", 2.25, 3),
    ],
)
def test_a_request_is_rounded_up_by_parts_of_powers_of_two(divisions: str, mib: float, expected_mib: float) -> None:
    """Between 1024 and 2048 KiB four parts end at 1280, 1536, 1792; between 4 and 8 MiB at 5, 6, 7.

    By size: two parts from 4 MiB on and, as it comes first, below (2, 3, 4 and 4, 6, 8); eight from 8 on (8, 9, 10);
    without an end what lies above is not rounded. `>` alone leaves out the first interval, all below 2 MiB.
    """
    settings = parse_settings(f"roundup_power2_divisions:{divisions}")

    assert settings.rounded(round(mib * MIB)) == round(expected_mib * MIB)


def test_small_and_huge_requests_use_the_first_and_the_last_interval() -> None:
    """Eight parts: 4.5 KiB become 4.5, 4608 B being eight parts of 512; 2 KiB are no more than 8 x 512 B and stay.

    96.5 GiB become 104, for 64 GiB are the last interval, of parts of 8.
    """
    settings = parse_settings("roundup_power2_divisions:8")

    assert [settings.rounded(nbytes) for nbytes in (2048, 4096, 4608, 9216, 9728)] == [2048, 4096, 4608, 9216, 10240]
    assert settings.rounded(96 * GIB + GIB // 2) == 104 * GIB


@pytest.mark.parametrize(
    ("free_mib", "asked_mib", "may"), [(63, 10, True), (64, 10, False), (64, 64, True), (83, 64, True), (84, 64, False)]
)
def test_an_uncut_block_serves_requests_of_its_size(free_mib: int, asked_mib: int, may: bool) -> None:  # noqa: FBT001  # given by pytest
    """From 64 on: not for less, and not where 20 would be wasted."""
    assert AllocatorSettings(max_split_size_mb=64).may_serve(free_mib * MIB, asked_mib * MIB) is may
    assert AllocatorSettings().may_serve(free_mib * MIB, asked_mib * MIB)
