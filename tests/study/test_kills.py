"""Sweeps that are killed lose nothing."""

from pathlib import Path

from tests.study.kills import begin, kill_once, study_file


def test_a_study_that_is_killed_ends_with_the_bytes_of_one_that_is_not(tmp_path: Path) -> None:
    study = study_file(tmp_path, 30)
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "out"
    assert begin(study, undisturbed).wait() == 0
    for delay_s in (0.9, 1.2):
        kill_once(study, out, delay_s)
    assert begin(study, out).wait() == 0
    assert (out / "results.csv").read_bytes() == (undisturbed / "results.csv").read_bytes()
