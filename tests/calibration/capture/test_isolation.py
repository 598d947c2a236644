"""A process of its own captures; its end by a signal is a sentence, and what it captured is kept."""

import os
import tempfile
from pathlib import Path

import pytest

from calibration.capture import isolation
from calibration.capture.isolation import captured
from calibration.capture.request import Request
from vdnnsim.errors import CaptureError

LINEAR = "import its_width\nfrom torch import nn\ndef make():\n    return nn.Linear(3, its_width.WIDTH)\n"


def request(path: Path) -> Request:
    return Request(model=f"{path}:make", batch_size=4, image=(3,), optimizer="none")


@pytest.mark.usefixtures("in_a_fork")
def test_what_was_captured_is_captured_again_only_when_a_file_of_it_changes(tmp_path: Path) -> None:
    """3 x 5 weights and 5 biases; 3 x 7 and 7 once the file that the user's file imports says so."""
    path, width, cache = tmp_path / "net.py", tmp_path / "its_width.py", tmp_path / "cache"
    path.write_text(LINEAR, encoding="utf-8")
    width.write_text("WIDTH = 5\n", encoding="utf-8")
    step, kept = captured(request(path), cache)
    assert (step.parameters, kept) == (20, None)
    again, kept = captured(request(path), cache)
    assert again == step
    assert kept is not None
    width.write_text("WIDTH = 7\n", encoding="utf-8")
    changed, kept = captured(request(path), cache)
    assert (changed.parameters, kept) == (28, None)
    for each in cache.iterdir():
        each.write_bytes(b"{")
    path.unlink()
    with pytest.raises(CaptureError, match="is not a file in"):
        captured(request(path), cache)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL, as Linux does where memory runs out"),
        (
            "os.write(2, b'terminate called\\n  what():  no driver\\nmore\\n'); os.abort()",
            "ended by SIGABRT; PyTorch's C++ or a library of the model's failed: what(): no driver",
        ),
        ("os._exit(7)", "the process that captures it ended itself with exit status 7"),
        ("raise SystemExit(3 + ('vdnnsim' in str(os.listdir(os.environ['TMPDIR']))))", "ends Python (exit status 3)"),
    ],
)
def test_an_end_of_the_process_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    """No file that has a name tells it: one would stay where the whole command is killed."""
    path, files = tmp_path / "net.py", tmp_path / "files"
    files.mkdir()
    monkeypatch.setenv("TMPDIR", str(files))
    monkeypatch.setattr(tempfile, "tempdir", str(files))
    path.write_text(f"import os\ndef make():\n    {text}\n", encoding="utf-8")
    with pytest.raises(CaptureError) as caught:
        captured(request(path), tmp_path / "cache")
    assert str(caught.value).startswith(f"{path}:make: ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("in_a_fork")
def test_a_cache_that_cannot_be_written_keeps_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "its_width.py").write_text("WIDTH = 5\n", encoding="utf-8")
    (tmp_path / "net.py").write_text(LINEAR, encoding="utf-8")
    (tmp_path / "cache").write_text("a file", encoding="utf-8")
    step, kept = captured(request(tmp_path / "net.py"), tmp_path / "cache")
    assert (step.parameters, kept) == (20, None)


@pytest.mark.usefixtures("in_a_fork")
def test_the_cache_keeps_what_was_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three files, each of 1,000 bytes, two may stay beside that of a new capture, those that were used last."""
    cache, path = tmp_path / "cache", tmp_path / "net.py"
    (tmp_path / "its_width.py").write_text("WIDTH = 5\n", encoding="utf-8")
    path.write_text(LINEAR, encoding="utf-8")
    cache.mkdir()
    for used, name in enumerate(("oldest", "older", "old"), start=1):
        (cache / f"{name}.json").write_bytes(b" " * 1000)
        os.utime(cache / f"{name}.json", (used, used))
    captured(request(path), cache)
    (kept,) = (each for each in cache.iterdir() if not each.name.startswith("old"))
    assert len([*cache.iterdir()]) == 4
    size = kept.stat().st_size
    kept.unlink()
    monkeypatch.setattr(isolation, "MOST_KEPT_BYTES", size + 2999)
    captured(request(path), cache)
    assert {each.name for each in cache.iterdir()} == {"older.json", "old.json", kept.name}


@pytest.mark.usefixtures("in_a_fork")
def test_what_is_read_from_the_cache_was_used(tmp_path: Path) -> None:
    (tmp_path / "its_width.py").write_text("WIDTH = 5\n", encoding="utf-8")
    (tmp_path / "net.py").write_text(LINEAR, encoding="utf-8")
    captured(request(tmp_path / "net.py"), tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    os.utime(kept, (1, 1))
    captured(request(tmp_path / "net.py"), tmp_path / "cache")
    assert kept.stat().st_mtime > 1


def test_without_pytorch_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(
        CaptureError, match=r"takes PyTorch, which is not installed: pip install 'vdnnsim\[calibrate\]'"
    ):
        captured(Request(model="timm:resnet18", batch_size=1), tmp_path)
