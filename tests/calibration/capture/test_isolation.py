"""Captures in a child process, and their cache."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from calibration.capture import child, isolation
from calibration.capture.isolation import captured, captured_together
from calibration.capture.request import Request
from tests.refusals import refusal
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision

LINEAR = "import its_width\nfrom torch import nn\ndef make():\n    return nn.Linear(3, its_width.WIDTH)\n"


def request(path: Path) -> Request:
    return Request(model=f"{path}:make", batch_size=4, image=(3,), optimizer="none")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A file with a model of 3 x 5 weights and 5 biases, which imports its width."""
    (tmp_path / "its_width.py").write_text("WIDTH = 5\n", encoding="utf-8")
    path = tmp_path / "net.py"
    path.write_text(LINEAR, encoding="utf-8")
    return path


@pytest.mark.usefixtures("in_a_fork")
def test_a_cached_capture_is_used_until_an_imported_file_changes(net: Path, tmp_path: Path) -> None:
    """20 parameters; 3 x 7 + 7 once the imported file says so. Use of the cache sets its time."""
    cache = tmp_path / "cache"
    step, kept = captured(request(net), cache)
    assert (step.parameters, kept) == (20, None)
    (file,) = cache.iterdir()
    os.utime(file, (1, 1))
    assert captured(request(net), cache) == (step, file)
    assert file.stat().st_mtime > 1
    (tmp_path / "its_width.py").write_text("WIDTH = 7\n", encoding="utf-8")
    changed, kept = captured(request(net), cache)
    assert (changed.parameters, kept) == (28, None)
    file.write_bytes(b"{")
    net.unlink()
    with pytest.raises(CaptureError, match="is not a file in"):
        captured(request(net), cache)


@pytest.mark.usefixtures("in_a_fork")
def test_only_batches_that_are_not_cached_are_captured(net: Path, tmp_path: Path) -> None:
    """At 4, then at 4, 2 and 1, of which two are missing."""
    process = Mock(wraps=isolation.CapturingProcess())
    sizes = [msgspec.structs.replace(request(net), batch_size=each) for each in (4, 2, 1)]
    captured(sizes[0], tmp_path / "cache")
    for asked in (sizes[1:], []):
        found = captured_together(sizes, tmp_path / "cache", process=process)
        assert [step.batch_size for step, _ in found] == [4, 2, 1]
        assert [each.args for each in process.answer.call_args_list] == [(each,) for each in asked]
        process.reset_mock()


@pytest.mark.usefixtures("in_a_fork")
@pytest.mark.parametrize(("attends", "count"), [(False, 1), (True, 2)])
def test_a_capture_holds_for_other_cards_unless_it_attends(
    net: Path, tmp_path: Path, *, attends: bool, count: int
) -> None:
    """What is read from the cache is what a capture for that card gives; only attention is chosen by the card."""
    if attends:
        net.write_text("from torch import nn\ndef make():\n    return nn.TransformerEncoderLayer(64, 1, 64)\n", "utf-8")
    plain = msgspec.structs.replace(request(net), image=(4, 64) if attends else (3,), precision=Precision.BFLOAT16)
    hopper = msgspec.structs.replace(plain, compute_capability=(9, 0))
    captured(plain, tmp_path / "cache")
    step, _ = captured(hopper, tmp_path / "cache")
    assert len([*(tmp_path / "cache").iterdir()]) == count
    assert step == captured(hopper, tmp_path / "empty")[0]
    assert step.device == "cuda 9.0"


@pytest.mark.usefixtures("in_a_fork")
def test_attention_composed_of_other_operations_is_of_its_cards(net: Path, tmp_path: Path) -> None:
    """In bfloat16 a T4 has no fused attention; that of the RTX 4090 is the A100's."""
    net.write_text("from torch import nn\ndef make():\n    return nn.TransformerEncoderLayer(64, 1, 64)\n", "utf-8")
    plain = msgspec.structs.replace(request(net), image=(4, 64), precision=Precision.BFLOAT16)
    turing, ampere = (msgspec.structs.replace(plain, compute_capability=each) for each in ((7, 5), (8, 0)))
    composed, _ = captured(turing, tmp_path / "cache")
    assert not any("_scaled_dot_product" in each.name for each in composed.operations)
    fused, _ = captured(plain, tmp_path / "cache")
    assert any("_scaled_dot_product" in each.name for each in fused.operations)
    assert captured(ampere, tmp_path / "cache")[0] == msgspec.structs.replace(fused, device="cuda 8.0")
    assert len([*(tmp_path / "cache").iterdir()]) == 2


@pytest.mark.usefixtures("has_captured")
def test_a_model_is_made_once_until_a_capture_fails(net: Path) -> None:
    """Batches 4 and 2 of one model, 3 fails, and 4 of another; each is asked for once that before it was answered."""
    lines = LINEAR.splitlines()
    lines[2:] = ["made = []", "def make():", "    made.append(1)", "    return Even(3, its_width.WIDTH)"]
    lines += ["class Even(nn.Linear):", "    def forward(self, x):", "        return super().forward(x.view(-1, 2, 3))"]
    net.write_text("\n".join(lines), encoding="utf-8")
    said: list[str] = []

    def asked() -> Iterator[Request]:
        for each in (4, 2, 3, 4):
            said.append(f"asked for {each}")
            yield msgspec.structs.replace(request(net), batch_size=each)

    for answer in child.answers(asked()):
        said += [str(answer.step.batch_size) if answer.step else "none"]
    assert said == ["asked for 4", "4", "asked for 2", "2", "asked for 3", "none", "asked for 4", "4"]
    assert len(sys.modules["net"].made) == 2


@pytest.mark.usefixtures("has_captured")
def test_a_model_is_made_anew_for_another_precision(net: Path) -> None:
    """Autocast casts what the product reads."""
    narrow = msgspec.structs.replace(request(net), precision=Precision.AMP_BFLOAT16)
    steps = [answer.step for answer in child.answers((request(net), narrow))]
    assert [sum("_to_copy" in each.name for each in step.operations) > 0 for step in steps if step] == [False, True]


@pytest.mark.usefixtures("in_a_fork")
def test_checkpoints_are_captured_beside_the_plain_model(net: Path, tmp_path: Path) -> None:
    """Each block of the second runs its product again in backward, so that it has more operations than the first."""
    block = "nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 8) for _ in range(2)))"
    net.write_text(f"from torch import nn\ndef make():\n    return {block}\n", encoding="utf-8")
    plain = msgspec.structs.replace(request(net), image=(4, 8))
    both = captured_together((plain, msgspec.structs.replace(plain, checkpointing="full")), tmp_path / "cache")
    first, second = (step for step, _ in both)
    assert len(second.operations) > len(first.operations)
    assert [step.program.checkpointing for step in (first, second)] == ["", "full"]


@pytest.mark.usefixtures("in_a_fork")
def test_captures_end_before_one_that_cannot_be_made(net: Path, tmp_path: Path) -> None:
    """A model that refuses a batch of 2 has its capture of 4 alone, also from the cache."""
    sizes = [msgspec.structs.replace(request(net), batch_size=each) for each in (4, 2)]
    refusing = LINEAR.replace("return nn.Linear(3, its_width.WIDTH)", "return Four(3, 5)")
    refusing += "class Four(nn.Linear):\n    def forward(self, x):\n        return super().forward(x.view(4, 3))\n"
    net.write_text(refusing, encoding="utf-8")
    assert [step.batch_size for step, _ in captured_together(sizes, tmp_path / "cache")] == [4]
    assert [step.batch_size for step, _ in captured_together(sizes, tmp_path / "cache")] == [4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("os.write(2, b'terminate called\\n  what():  no driver\\nmore\\n'); os.abort()", "failed: what(): no driver"),
        ("raise SystemExit(3 + ('vdnnsim' in str(os.listdir(os.environ['TMPDIR']))))", "ends Python (exit status 3)"),
    ],
)
def test_the_end_of_the_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """Without named temporary files, which would stay where the command is killed."""
    path, files = tmp_path / "net.py", tmp_path / "files"
    files.mkdir()
    monkeypatch.setenv("TMPDIR", str(files))
    monkeypatch.setattr(tempfile, "tempdir", str(files))
    path.write_text(f"import os\ndef make():\n    {text}\n", encoding="utf-8")
    said = refusal(CaptureError, captured, request(path), tmp_path / "cache")
    assert said.startswith(f"{path}:make: ")
    assert message in said
    assert not (tmp_path / "cache").exists()


def test_the_status_of_the_process_is_explained() -> None:
    assert "itself with exit status 7" in isolation._end(7)  # noqa: SLF001
    assert "SIGKILL, as Linux does where memory runs out" in isolation._end(-9)  # noqa: SLF001
    assert "signal 250" in isolation._end(-250)  # noqa: SLF001


@pytest.mark.usefixtures("in_a_fork")
def test_a_cache_that_cannot_be_written_fails_no_capture(net: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    step, kept = captured(request(net), tmp_path / "cache")
    assert (step.parameters, kept) == (20, None)


@pytest.mark.usefixtures("in_a_fork")
def test_the_cache_drops_the_least_recently_used(net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three files of 1,000 bytes, two may stay beside that of a new capture."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for used, name in enumerate(("oldest", "older", "old"), start=1):
        (cache / f"{name}.json").write_bytes(b" " * 1000)
        os.utime(cache / f"{name}.json", (used, used))
    captured(request(net), cache)
    (kept,) = (each for each in cache.iterdir() if not each.name.startswith("old"))
    assert len([*cache.iterdir()]) == 4
    size = kept.stat().st_size
    kept.unlink()
    monkeypatch.setattr("vdnnsim.files.user_cache.MOST_KEPT_BYTES", size + 2999)
    captured(request(net), cache)
    assert {each.name for each in cache.iterdir()} == {"older.json", "old.json", kept.name}


def test_a_missing_pytorch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(CaptureError, match=r"pip install 'vdnnsim\[calibrate\]'"):
        captured(Request(model="timm:resnet18", batch_size=1), tmp_path)
