"""Compilation of the pretended CUDA runtime against the headers in PyTorch's wheels, cached by sources and versions."""

import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vdnnsim.errors import DeviceError
from vdnnsim.files.user_cache import user_cache

_SOURCES: Final = Path(__file__).parent / "runtime"
_CORE: Final = (
    "state.c errors.c extents.c addresses.c recording.c schedule.c device.c memory.c virtual_memory.c "
    "handles.c streams.c events.c graphs.c copies.c images.c launches.c driver.c modules.c nvml.c"
).split()
"""Sources of the runtime; `absent.c` defines what the others do not, and all other files are of libraries."""
_ABSENT: Final = "absent.c"
_NAMES_OF_RUNTIME: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
"""Libraries of the driver: empty ones, linked to the runtime, in which their calls are defined."""
_FLAGS: Final = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter")
_FUNCTION: Final = re.compile(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(")


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """A CUDA build of PyTorch and the wheels of its CUDA.

    Attributes:
        runtime: the real `libcudart.so.N`, whose names of calls are read.
        headers: folders of the headers of CUDA, cuBLAS and cuDNN.
    """

    version: str
    cuda: str
    runtime: Path
    headers: tuple[Path, ...]

    @property
    def soname(self) -> str:
        return self.runtime.name


@dataclass(frozen=True, slots=True)
class Runtime:
    """The compiled runtime: its libraries in the order in which they are preloaded."""

    torch: TorchBuild
    libraries: tuple[Path, ...]


def find_torch(folders: Sequence[str] | None = None) -> TorchBuild:
    """Return the PyTorch in some folders of packages, by default those of this Python; it is not imported.

    Raises:
        DeviceError: there is none, it was built without CUDA, or its wheels of CUDA are missing.
    """
    places = sys.path if folders is None else list(folders)
    found = next(iter(importlib.metadata.distributions(name="torch", path=places)), None)
    if found is None:
        raise DeviceError("a pretended GPU needs PyTorch, which is not installed; see https://pytorch.org")
    packages = Path(str(found.locate_file("")))
    version = (packages / "torch" / "version.py").read_text(encoding="utf-8")
    match = re.search(r"^cuda\b.*?=\s*['\"](\d+)\.(\d+)['\"]", version, re.MULTILINE)
    if match is None:
        raise DeviceError(
            f"a pretended GPU needs PyTorch built for CUDA, and torch {found.version} was built without it; "
            "the default wheel for Linux has it: pip install torch"
        )
    major = match[1]
    nvidia, library = packages / "nvidia", f"lib/libcudart.so.{major}"
    runtimes = (nvidia / folder / library for folder in (f"cu{major}", "cuda_runtime"))
    runtime = next(filter(Path.is_file, runtimes), None)
    folders_of_headers = (nvidia / name / "include" for name in (f"cu{major}", "cuda_runtime", "cublas", "cudnn"))
    headers = tuple(filter(Path.is_dir, folders_of_headers))
    if runtime is None or not any((path / "cuda_runtime_api.h").is_file() for path in headers):
        raise DeviceError(
            f"torch {found.version} is installed without NVIDIA's package of the CUDA runtime, whose headers are "
            "needed to compile a pretended GPU; it comes with the wheel of pip install torch"
        )
    return TorchBuild(found.version, f"{match[1]}.{match[2]}", runtime, headers)


def build_runtime(torch: TorchBuild, cache: Path | None = None) -> Runtime:
    """Return the runtime for a PyTorch from a cache, compiled if it is not there for these sources and headers.

    The cache is by default `vdnnsim/pretend` in the user's.

    Raises:
        DeviceError: this machine is not Linux on x86-64, there is no C compiler, or it fails.
    """
    compiler = find_compiler()
    folder = (cache or user_cache("pretend")) / _digest(torch, compiler)
    if any(each in str(folder) for each in " :"):
        raise DeviceError(f"the path of compiled runtimes may have no space and no colon: {folder}; set XDG_CACHE_HOME")
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _build_into(folder, torch, compiler)
    return Runtime(torch, tuple(folder / name for name in _library_names(torch)))


def find_compiler() -> str:
    """Return the C compiler of this machine, or raise DeviceError where it is not Linux on x86-64, or there is none."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise DeviceError(
            f"a pretended GPU needs Linux on x86-64, as PyTorch's CUDA build does; this is {sys.platform} on "
            f"{platform.machine()}"
        )
    compiler = shutil.which("cc")
    if compiler is None or shutil.which("nm") is None:
        raise DeviceError("a pretended GPU is compiled on first use by a C compiler, and there is no cc and nm on PATH")
    return compiler


def _library_names(torch: TorchBuild) -> tuple[str, ...]:
    names = (torch.soname, *_NAMES_OF_RUNTIME)
    return (*names, "libpretend_libraries.so") if _library_sources() else names


def _library_sources() -> list[Path]:
    return sorted(path for path in _SOURCES.glob("*.c") if path.name not in (*_CORE, _ABSENT))


def _digest(torch: TorchBuild, compiler: str) -> str:
    digest = hashlib.sha256()
    read = [path for path in sorted(_SOURCES.rglob("*")) if path.suffix in {".c", ".h"}]
    stated = ("cuda_runtime_api.h", "cuda.h", "cublas_api.h", "cudnn_version.h", "cudnn_graph.h")
    read += [folder / name for folder in torch.headers for name in stated if (folder / name).is_file()]
    for path in [*read, torch.runtime, Path(__file__)]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    digest.update(_output([compiler, "--version"]).encode())
    return digest.hexdigest()[:20]


def _build_into(folder: Path, torch: TorchBuild, compiler: str) -> None:
    """Compile beside the folder and rename atomically, in case another process does the same."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as text:
        _compile(Path(text), torch, compiler)
        done = folder.with_name(f"{folder.name}-{os.getpid()}")
        shutil.copytree(text, done, ignore=lambda _, names: [name for name in names if ".so" not in name])
    try:
        done.rename(folder)
    except OSError:
        shutil.rmtree(done)
        if not folder.is_dir():
            raise


def _compile(folder: Path, torch: TorchBuild, compiler: str) -> None:
    flags = [*_FLAGS, f"-I{folder}", f"-I{_SOURCES}", *(f"-isystem{path}" for path in torch.headers)]
    objects = [_object(folder, _SOURCES / name, [compiler, *flags]) for name in _CORE]
    _write_absent_calls(folder, torch, [compiler, *flags], objects)
    objects.append(_object(folder, _SOURCES / _ABSENT, [compiler, *flags]))
    versions = folder / "versions.map"
    versions.write_text(f"{torch.soname} {{ cuda*; __cuda*; }};\n", encoding="utf-8")
    runtime = folder / torch.soname
    link = [compiler, "-shared", "-Wl,--no-undefined"]
    _output([*link, "-o", str(runtime), *objects, f"-Wl,-soname,{torch.soname}", f"-Wl,--version-script,{versions}"])
    nothing = folder / "nothing.c"
    nothing.write_text("", encoding="utf-8")
    by_name = ["-Wl,--no-as-needed", str(runtime), "-Wl,-rpath,$ORIGIN"]
    for name in _NAMES_OF_RUNTIME:
        _output([*link, "-fPIC", "-o", str(folder / name), str(nothing), f"-Wl,-soname,{name}", *by_name])
    if sources := _library_sources():
        libraries = [_object(folder, path, [compiler, *flags]) for path in sources]
        _output([*link, "-o", str(folder / "libpretend_libraries.so"), *libraries, *by_name, "-ldl"])


def _object(folder: Path, source: Path, command: list[str]) -> str:
    path = str(folder / f"{source.stem}.o")
    _output([*command, "-c", str(source), "-o", path])
    return path


def _write_absent_calls(folder: Path, torch: TorchBuild, command: list[str], objects: list[str]) -> None:
    """Write the names of calls of the real libraries that the compiled files do not define."""
    defined = _defined(_output(["nm", "--defined-only", *objects]))
    of_runtime = _defined(_output(["nm", "--dynamic", "--defined-only", str(torch.runtime)]))
    declaring = folder / "driver_calls.c"
    declaring.write_text("#include <cuda.h>\n", encoding="utf-8")
    of_driver = set(_FUNCTION.findall(_output([*command, "-E", "-P", str(declaring)])))
    lines = [
        f"ABSENT_OF_RUNTIME({name})" for name in sorted(of_runtime - defined) if name.lstrip("_").startswith("cuda")
    ]
    lines += [f"ABSENT_OF_DRIVER({name})" for name in sorted(of_driver - defined)]
    (folder / "absent_calls.h").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _defined(symbols: str) -> set[str]:
    """Return the names in the output of nm, without versions."""
    return {words[2].partition("@")[0] for words in map(str.split, symbols.splitlines()) if len(words) == 3}


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the compiler and nm
    if done.returncode:
        lines = done.stderr.splitlines()
        error = next((line for line in lines if " error: " in line or "undefined" in line), done.stderr.strip()[-300:])
        raise DeviceError(f"the pretended CUDA runtime does not compile: {error}")
    return done.stdout
