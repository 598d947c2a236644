import pytest

from vdnnsim.report.labels import fold_label


@pytest.mark.parametrize(
    ("label", "width", "lines"),
    [
        ("vdnn_conv(m)", 12, ["vdnn_conv(m)"]),
        ("vdnn_conv(m)", 10, ["vdnn_", "conv(m)"]),
        ("memonger(p)", 10, ["memonger", "(p)"]),
        ("none(m), staggered_swap(m), accumulate(m)", 28, ["none(m), staggered_swap(m),", "accumulate(m)"]),
        ("swap(m), vdnn_all(m, maps=all)", 19, ["swap(m),", "vdnn_all(m,", "maps=all)"]),
        ("swap(m), first_maps(count=8)", 22, ["swap(m),", "first_maps(count=8)"]),
        ("vdnn_all(m, prefetch_search=fig10)", 14, ["vdnn_all(m,", "prefetch_", "search=fig10)"]),
        ("page_migration(p)", 8, ["page_", "migratio", "n(p)"]),
        ("page_migration(m, page_latency=0)", 23, ["page_migration(m,", "page_latency=0)"]),
        ("a" * 30, 17, ["a" * 17, "a" * 13]),
        ("v-mem-5.growth", 13, ["v-mem-5.", "growth"]),
        ("overlap(share=0.5)", 17, ["overlap(share=", "0.5)"]),
        ("one, two", 8, ["one, two"]),
        ("", 3, [""]),
    ],
)
def test_labels_are_broken_between_words(label: str, width: int, lines: list[str]) -> None:
    assert fold_label(label, width).split("\n") == lines
