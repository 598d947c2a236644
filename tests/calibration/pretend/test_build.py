import shutil
import subprocess
from pathlib import Path

import pytest

from calibration.pretend import build
from calibration.pretend.build import TorchBuild, build_runtime, find_torch
from vdnnsim.errors import DeviceError

CORE = """
#include <cuda_runtime_api.h>
int cudaMalloc(void) { return 42; }
int cuInit(void) { return 0; }
"""
ABSENT = """
#define ABSENT_OF_RUNTIME(name) int name(void) { return 801; }
#define ABSENT_OF_DRIVER(name) int name(void) { return -801; }
#include "absent_calls.h"
"""


def install(packages: Path, version: str, text: str) -> None:
    """Put the files of PyTorch's wheel that are read into a folder of packages."""
    (packages / "torch").mkdir(parents=True)
    (packages / "torch" / "version.py").write_text(text, encoding="utf-8")
    metadata = packages / f"torch-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n", encoding="utf-8")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A PyTorch for CUDA 13 whose runtime has three calls, and a driver with two."""
    packages = tmp_path / "packages"
    install(packages, "2.14.1", "__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n")
    cuda = packages / "nvidia" / "cu13"
    (cuda / "include").mkdir(parents=True)
    (cuda / "lib").mkdir()
    (cuda / "include" / "cuda_runtime_api.h").write_text("", encoding="utf-8")
    (cuda / "include" / "cuda.h").write_text("CUresult cuInit(void);\nCUresult cuCtxCreate(void);\n", encoding="utf-8")
    real = tmp_path / "real.c"
    real.write_text("void cudaMalloc(void) {} void cudaFree(void) {} void __cudaOne(void) {} void other(void) {}")
    compiler = shutil.which("cc")
    assert compiler is not None
    command = [compiler, "-shared", "-fPIC", "-o", str(cuda / "lib" / "libcudart.so.13"), str(real)]
    subprocess.run(command, check=True)
    return packages


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime of one call each instead of the real one."""
    sources = tmp_path / "runtime"
    sources.mkdir()
    (sources / "core.c").write_text(CORE, encoding="utf-8")
    (sources / "absent.c").write_text(ABSENT, encoding="utf-8")
    monkeypatch.setattr(build, "_SOURCES", sources)
    monkeypatch.setattr(build, "_CORE", ("core.c",))
    monkeypatch.setattr(build, "_FLAGS", ("-fPIC",))
    return sources


def symbols(library: Path) -> set[str]:
    names = shutil.which("nm")
    assert names is not None
    done = subprocess.run([names, "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return {line.split()[2] for line in done.stdout.splitlines() if not line.split()[2].startswith("_")}


def test_a_build_of_pytorch_is_found_by_its_wheels(packages: Path, tmp_path: Path) -> None:
    cuda = packages / "nvidia" / "cu13"
    expected = TorchBuild("2.14.1", "13.0", cuda / "lib" / "libcudart.so.13", (cuda / "include",))
    assert find_torch([str(packages)]) == expected
    assert expected.soname == "libcudart.so.13"
    # The wheels of cuda 12 lie in folders of their own.
    install(tmp_path, "2.10.0", "cuda: str | None = '12.8'\n")
    for name in ("cuda_runtime/lib", "cuda_runtime/include", "cudnn/include"):
        (tmp_path / "nvidia" / name).mkdir(parents=True)
    runtime = tmp_path / "nvidia" / "cuda_runtime"
    (runtime / "lib" / "libcudart.so.12").touch()
    (runtime / "include" / "cuda_runtime_api.h").touch()
    found = find_torch([str(tmp_path)])
    assert (found.cuda, found.soname) == ("12.8", "libcudart.so.12")
    assert found.headers == (runtime / "include", tmp_path / "nvidia" / "cudnn" / "include")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "PyTorch, which is not installed"),
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", "torch 2.13.0 was built without it"),
        # As conda installs it, or beside a system's own CUDA.
        ("cuda: Optional[str] = '13.0'\n", "without NVIDIA's package of the CUDA runtime"),
    ],
)
def test_a_pytorch_without_cuda_is_refused(tmp_path: Path, text: str, message: str) -> None:
    if text:
        install(tmp_path, "2.13.0", text)
    with pytest.raises(DeviceError, match=message):
        find_torch([str(tmp_path)])


@pytest.mark.usefixtures("sources")
def test_every_call_of_the_real_libraries_is_there(packages: Path, tmp_path: Path) -> None:
    """The runtime has cudaMalloc itself; cudaFree and the driver's cuCtxCreate fail, and what is not CUDA's is left."""
    runtime = build_runtime(find_torch([str(packages)]), tmp_path / "cache")
    assert [path.name for path in runtime.libraries] == ["libcudart.so.13", "libcuda.so.1", "libnvidia-ml.so.1"]
    version = "@@libcudart.so.13"
    names = {f"{name}{version}" for name in ("cudaMalloc", "cudaFree")} | {"cuInit", "cuCtxCreate"}
    assert symbols(runtime.libraries[0]) - {"libcudart.so.13"} == names


@pytest.mark.usefixtures("packages")
def test_libraries_beside_the_runtime_are_one_more_to_load(sources: Path, packages: Path, tmp_path: Path) -> None:
    (sources / "cublas.c").write_text("int cudaMalloc(void); int cublasCreate(void) { return cudaMalloc(); }")
    runtime = build_runtime(find_torch([str(packages)]), tmp_path / "cache")
    assert runtime.libraries[-1].name == "libpretend_libraries.so"
    assert "cublasCreate" in symbols(runtime.libraries[-1])


def test_a_runtime_is_compiled_once_for_the_same_sources(packages: Path, sources: Path, tmp_path: Path) -> None:
    torch = find_torch([str(packages)])
    first = build_runtime(torch, tmp_path / "cache")
    compiled = first.libraries[0].stat().st_mtime_ns
    assert build_runtime(torch, tmp_path / "cache") == first
    assert first.libraries[0].stat().st_mtime_ns == compiled
    with (sources / "core.c").open("a", encoding="utf-8") as file:
        file.write("int more;\n")
    assert build_runtime(torch, tmp_path / "cache") != first
    assert len(list((tmp_path / "cache").iterdir())) == 2, "nothing is left of building"


def test_compile_error_quotes_the_compiler(packages: Path, sources: Path, tmp_path: Path) -> None:
    (sources / "core.c").write_text("int cudaMalloc(void) { return nothing; }", encoding="utf-8")
    with pytest.raises(DeviceError, match=r"does not compile: .*nothing.* undeclared"):
        build_runtime(find_torch([str(packages)]), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.usefixtures("sources")
def test_a_runtime_compiled_meanwhile_is_used(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process renames its folder first, so this one's rename finds a folder that is not empty."""
    torch = find_torch([str(packages)])
    done = build_runtime(torch, tmp_path / "other")
    put_in_place = Path.rename

    def late(self: Path, target: Path) -> Path:
        shutil.copytree(done.libraries[0].parent, target)
        return put_in_place(self, target)

    monkeypatch.setattr(Path, "rename", late)
    runtime = build_runtime(torch, tmp_path / "cache")
    assert all(path.is_file() for path in runtime.libraries)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.usefixtures("sources")
def test_unusable_path_compiler_and_platform_are_refused(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = find_torch([str(packages)])
    with pytest.raises(DeviceError, match=r"no space and no colon: .*; set XDG_CACHE_HOME"):
        build_runtime(torch, tmp_path / "my cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match="there is no cc and nm on PATH"):
        build_runtime(torch, tmp_path / "cache")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(DeviceError, match="this is linux on arm64"):
        build_runtime(torch, tmp_path / "cache")


@pytest.mark.usefixtures("sources")
def test_the_users_cache_is_where_runtimes_lie(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runtime = build_runtime(find_torch([str(packages)]))
    assert runtime.libraries[0].parent.parent == tmp_path / "cache" / "vdnnsim" / "pretend"
