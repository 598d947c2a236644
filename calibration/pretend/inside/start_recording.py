"""Import hook that starts recording once PyTorch is imported, from the first use of CUDA on."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


def wait_for_pytorch(session: Path) -> None:
    """Record this process into the folder of a session, from its first use of CUDA on; without one, do nothing."""

    def imported() -> None:
        # This module imports PyTorch.
        from .recording import record_from_first_use

        record_from_first_use(session)

    when_pytorch_is_imported(imported)


def when_pytorch_is_imported(do: Callable[[], None]) -> None:
    """Call a function once PyTorch has been imported, if it ever is."""
    sys.meta_path.insert(0, _Waiting(do))


class _Waiting(MetaPathFinder):
    """Finds PyTorch as without this hook, and calls back when it has been imported.

    `importlib.util.find_spec("torch")` looks for it without importing it.
    """

    def __init__(self, imported: Callable[[], None]) -> None:
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Wrap the loader of `torch`; leave all other modules to others."""
        if fullname != "torch":
            return None
        # Another hook may follow this one.
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (each.find_spec(fullname, path, target) for each in behind if hasattr(each, "find_spec"))
        spec = next(filter(None, found), None)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_say(module: ModuleType) -> None:
            run(module)
            sys.meta_path.remove(self)
            self._imported()

        spec.loader.exec_module = run_and_say  # type: ignore[method-assign]  # this loader loads nothing else
        return spec
