"""What the help of `sweep` and `whatif` says is what they read."""

import re
import textwrap
from pathlib import Path

from vdnnsim.cli.study import STUDY, keys_help
from vdnnsim.policies.registry import known_policies
from vdnnsim.study.axes import study_keys
from vdnnsim.study.points.resolve import POLICY
from vdnnsim.study.read import read_study

ROOT = Path(__file__).parents[3]
_KEY = re.compile(r"[a-z_]+\.[A-Za-z_0-9.]+|(?<=[ ,])(?:hardware|gpus|gradients|memory_model|pinned_memory)\b")


def test_the_help_names_every_key_that_can_be_varied() -> None:
    """Those of a cost model stand there as one; `policy` is an axis alone, and is in the example."""
    keys = study_keys(known_policies(), Path())
    known = {re.sub(r"^cost_model\..*", "cost_model.NAME", name) for name in keys if name != POLICY}
    assert sorted(_KEY.findall(keys_help())) == sorted(known)


def test_the_help_says_of_a_figure_what_it_is_and_how_it_is_written() -> None:
    lines = keys_help().splitlines()
    assert "  gpu.granule               to which the pool rounds an allocation, as 512 B" in lines
    assert max(map(len, lines)) <= 78


def test_the_example_of_the_help_is_a_study(tmp_path: Path) -> None:
    """Three policies, two memories and links of 16, 32, 64, 128, 256 and 512 GB/s, less checkpoint with 12 GiB."""
    (tmp_path / "vgg416.yaml").write_bytes((ROOT / "scenarios" / "vgg416.yaml").read_bytes())
    path = tmp_path / "study.yaml"
    path.write_text(textwrap.dedent(STUDY.partition("A study:\n")[2]), encoding="utf-8")

    study = read_study(path)

    assert (study.grid_size, len(list(study.points()))) == (36, 30)
    assert [picture.name for picture in study.pictures] == ["speed"]
