"""Import hooks: a call once a module has been imported, as PyTorch, from which on its process is recorded."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, do: Callable[[], None]) -> None:
    """Call a function once a module has been imported, if it ever is."""
    sys.meta_path.insert(0, _Waiting(name, do))


class _Waiting(MetaPathFinder):
    """Finds a module as without this hook, and calls back when it has been imported.

    `importlib.util.find_spec` looks for it without importing it.
    """

    def __init__(self, name: str, imported: Callable[[], None]) -> None:
        self._name = name
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Wrap the loader of the module; leave all others to others."""
        if fullname != self._name:
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
