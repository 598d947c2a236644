import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.errors import OutputError, ProfileError
from vdnnsim.hardware.figures import state
from vdnnsim.hardware.profile import find_profile, load_profile, read_profile
from vdnnsim.hardware.server import Figure, Gpu, Host, Link, Origin, Power, Server
from vdnnsim.hardware.stated_figure import parameter_range
from vdnnsim.hardware.write import kernels_beside, profile_text, refuse_foreign_profile, write_profile
from vdnnsim.units import GIB, ElementType

ROOT = Path(__file__).parents[3]
TABLE = "operator,phase\n"

texts = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
origins = st.sampled_from(Origin)


@st.composite
def servers(draw: st.DrawFn) -> Server:
    """Any machine whose figures a calibrator could state."""
    figures: list[Figure] = []

    def real(path: str, low: float, high: float) -> float:
        number = draw(st.floats(low, high))
        figures.append(state(path, number, draw(origins), draw(texts)))
        return number

    def whole(path: str, high: int) -> int:
        number = draw(st.integers(1, high))
        figures.append(state(path, number, draw(origins), draw(texts)))
        return number

    def perhaps(path: str, low: float, high: float) -> float | None:
        return real(path, low, high) if draw(st.booleans()) else None

    gpu = Gpu(
        name=draw(texts),
        memory_bytes=whole("gpu.memory", 2**53),
        dram_bytes_per_s=real("gpu.dram_bandwidth", 1, 1e18),
        multiprocessors=whole("gpu.multiprocessors", 10**6),
        granule_bytes=whole("gpu.granule", GIB),
        context_bytes=whole("gpu.context", 2**53) if draw(st.booleans()) else 0,
        handle_bytes=whole("gpu.handle", 2**53) if draw(st.booleans()) else 0,
        flop_per_s={
            each: real(f"gpu.peak.{each.value}", 1, 1e18)
            for each in draw(st.lists(st.sampled_from(ElementType), min_size=1, unique=True))
        },
    )
    link = Link(
        name=draw(texts),
        h2d_bytes_per_s=real("link.h2d", 1, 1e18),
        d2h_bytes_per_s=real("link.d2h", 1, 1e18),
        latency_s=real("link.latency", 0, 10),
        peak_bytes_per_s=perhaps("link.peak", 1, 1e18),
        pageable_h2d_bytes_per_s=perhaps("link.pageable_h2d", 1, 1e18),
        pageable_d2h_bytes_per_s=perhaps("link.pageable_d2h", 1, 1e18),
        both_directions_fraction=perhaps("link.both_directions", 0.001, 1),
        beside_compute_fraction=perhaps("link.beside_compute", 0.001, 1),
        beside_memory_bound_fraction=perhaps("link.beside_memory_bound", 0.001, 1),
    )
    host = Host(
        memory_bytes=whole("host.memory", 2**53),
        issue_s=real("host.issue", 0, 10),
        pin_latency_s=real("host.pin_latency", 0, 10),
        pin_bytes_per_s=real("host.pin_bandwidth", 1, 1e18),
    )
    names = draw(st.lists(st.sampled_from(("null", "yes", "product_flop_fraction")), unique=True))
    limits = {name: parameter_range(name) for name in names}
    cost_model = {name: real(f"cost_model.{name}", each.low, each.high) for name, each in limits.items()}
    power = None
    if draw(st.booleans()):
        power = Power(
            idle_watts=real("power.idle", 0, 1e5),
            joules_per_flop=real("power.flop", 0, 1),
            joules_per_dram_byte=real("power.dram", 0, 1),
            joules_per_link_byte=real("power.link", 0, 1),
        )
        if draw(st.booleans()):
            power = replace(power, limit_watts=real("power.limit", 0, 1e5))
    provenance = (("torch", draw(st.sampled_from(("2.11", "null", "- a: 'b'")))),) if draw(st.booleans()) else ()
    kind = draw(st.sampled_from(("maxwell", "roofline", "table")))
    return Server("mine", gpu, link, host, cost_model, tuple(figures), power, None, provenance, cost_model_kind=kind)


@given(server=servers(), description=st.sampled_from(('a "quoted" machine: # no comment', "0x10", "{")))
def test_a_written_machine_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, server: Server, description: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "mine.yaml"
    path.write_bytes(profile_text(server, description).encode())
    profile = load_profile(path)
    assert profile.server == server
    assert profile.description == description


def test_a_shipped_profile_is_written_and_reads_back_equal(tmp_path: Path) -> None:
    titan = load_profile(find_profile("titan_x_maxwell", ROOT))
    (path,) = write_profile(tmp_path / "titan_x_maxwell.yaml", titan.server, titan.description)
    assert load_profile(path).server == titan.server
    # A figure stands on one line where it fits.
    text = profile_text(calibrated(tmp_path / "mine.yaml"), "mine")
    assert '  dram_bandwidth: {value: 336 GB/s, origin: paper, source: "paper, IV-B: max 336 GB/sec"}\n' in text
    assert "  granule:\n    value: 512 B\n    origin: datasheet\n    source: " in text
    assert '\nkernels: {table: "mine.kernels.csv", tf32: true, layout: nhwc}\n' in text
    assert '\nprovenance:\n  torch: "2.11"\n' in text


def calibrated(path: Path) -> Server:
    titan = read_profile(find_profile("titan_x_maxwell", ROOT))
    kernels = kernels_beside(path, TABLE, tf32=True, channels_last=True)
    return replace(titan, name=path.stem, kernels=kernels, provenance=(("torch", "2.11"),))


def test_a_profile_comes_with_its_table(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mine.yaml"
    server = calibrated(path)
    table = path.with_name("mine.kernels.csv")
    assert write_profile(path, server, "mine", TABLE) == (table, path)
    assert table.read_text(encoding="utf-8") == TABLE
    assert read_profile(path) == server
    assert server.kernels is not None
    assert server.kernels.sha256 == hashlib.sha256(TABLE.encode()).hexdigest()


@pytest.mark.parametrize("name", ["mine.yaml", "mine.kernels.csv", "mine.copies.csv"])
def test_files_of_users_are_not_overwritten(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.yaml"
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match=rf"{name}: does not say that vdnnsim wrote it"):
        refuse_foreign_profile(path)
    write_profile(path, calibrated(path), "mine", TABLE)
    refuse_foreign_profile(path)


@pytest.mark.parametrize("renames", range(4))
def test_an_interrupted_write_leaves_no_profile_with_the_table_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """Killed before each of the three replacements, of marker, table and profile, and after all."""
    path, replace_path, left = tmp_path / "mine.yaml", Path.replace, renames
    write_profile(path, calibrated(path), "first", TABLE)

    def end(complete: Path, place: Path) -> Path:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return replace_path(complete, place)

    other = f"{TABLE}more\n"
    kernels = kernels_beside(path, other, tf32=True, channels_last=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) if renames < 3 else patch.context():
        patch.setattr(Path, "replace", end)
        write_profile(path, replace(calibrated(path), kernels=kernels), "second", other)
    found = path.with_name("mine.kernels.csv").read_text(encoding="utf-8")
    assert found == (TABLE if renames < 2 else other)
    if renames in (0, 3):
        assert load_profile(path).description == ("second" if renames else "first")
    else:
        with pytest.raises(ProfileError, match=r"mine\.yaml: unfinished: "):
            load_profile(path)


def test_identifying_text_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    server = calibrated(path)
    with pytest.raises(ProfileError, match=r"description: .* looks like an e-mail address"):
        write_profile(path, server, "of ann@example.org", TABLE)
    with pytest.raises(ProfileError, match=r"hostname: .* looks like the name of a machine"):
        write_profile(path, replace(server, provenance=(("hostname", "thunder"),)), "mine", TABLE)
    assert list(tmp_path.iterdir()) == []
    # A figure that states another number is a bug.
    titan = read_profile(find_profile("titan_x_maxwell", ROOT))
    with pytest.raises(AssertionError, match=r"^link\.latency: 2\.0 as 10 us$"):
        profile_text(replace(titan, link=replace(titan.link, latency_s=2.0)), "x")
    with pytest.raises(AssertionError, match=r"^figures of nothing: link\.peak$"):
        profile_text(replace(titan, link=replace(titan.link, peak_bytes_per_s=None)), "x")
