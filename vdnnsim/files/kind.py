"""Which of the three kinds of YAML files one is, which its keys tell."""

from enum import Enum

from vdnnsim.files.value import Entry


class FileKind(Enum):
    """A kind of file, as messages call it."""

    SCENARIO = "a scenario"
    STUDY = "a study"
    PROFILE = "a hardware profile"


_USES = {
    FileKind.SCENARIO: "vdnnsim run replays it",
    FileKind.STUDY: "vdnnsim sweep computes it",
    FileKind.PROFILE: "a scenario names it as its hardware",
}


def kind_of(root: Entry) -> FileKind | None:
    """Return what a file is by a key that no other kind has; None where it has none of them."""
    keys = root.value if isinstance(root.value, dict) else {}
    if "axes" in keys:
        return FileKind.STUDY
    if "workload" in keys:
        return FileKind.SCENARIO
    if "scenario" in keys:
        return FileKind.STUDY
    return FileKind.PROFILE if keys.keys() & {"gpu", "extends"} else None


def check_kind(root: Entry, expected: FileKind) -> None:
    """Refuse a file of another kind, and say what it is for; what is of no kind is left to its reader."""
    found = kind_of(root)
    if found not in (None, expected):
        assert found is not None
        raise root.wrong(f"this is {found.value}, expected {expected.value}; {_USES[found]}")
