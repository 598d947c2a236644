"""When recording begins: once PyTorch is imported, and in earnest with the first use of CUDA."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


def wait_for_pytorch(session: Path) -> None:
    """Record this process into the folder of a session, from its first use of CUDA on; without one, do nothing."""

    def imported() -> None:
        # Late, for what imports PyTorch itself must not be imported before it.
        from .recording import record_from_first_use

        record_from_first_use(session)

    when_pytorch_is_imported(imported)


def when_pytorch_is_imported(do: Callable[[], None]) -> None:
    """Do something once PyTorch has been imported, if it ever is."""
    sys.meta_path.insert(0, _Waiting(do))


class _Waiting(MetaPathFinder):
    """Finds PyTorch as it would be found without this, and says when it has been imported."""

    def __init__(self, imported: Callable[[], None]) -> None:
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Wrap the loader of `torch`, once; leave all other modules to others."""
        del path, target  # of no use for a module that is nobody's part
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_say(module: ModuleType) -> None:
            run(module)
            self._imported()

        spec.loader.exec_module = run_and_say  # type: ignore[method-assign]  # this loader loads nothing else
        return spec
