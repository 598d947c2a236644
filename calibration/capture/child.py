"""The capturing child process: reads requests from standard input, writes its answer to a file descriptor."""

import os
import sys
import sysconfig
from pathlib import Path

import msgspec

from calibration.availability import require_torch
from calibration.capture.isolation import Answer, Asked, file_sha256
from vdnnsim.errors import VdnnsimError

_OURS = Path(__file__).parents[2]


def main() -> None:
    """Answer requests; the last argument is the descriptor of the answer's file."""
    descriptor = int(sys.argv[-1])
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Asked)
    sys.argv[1:] = []
    try:
        answer = _answer(asked)
    except KeyboardInterrupt:
        sys.exit(130)
    with open(descriptor, "wb") as file:  # Path opens no descriptors
        file.write(msgspec.json.encode(answer))
    # Without exit handlers of libraries, some of which fail.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _answer(asked: Asked) -> Answer:
    try:
        require_torch("capture")
        from calibration.capture.sources import captured_together

        steps = captured_together(asked.requests, asked.room_bytes)
    except VdnnsimError as error:
        return Answer(error=str(error))
    except SystemExit as end:
        return Answer(error=f"{asked.requests[0].model}: its code ends Python (exit status {end.code})")
    config = asked.requests[0].config
    described = {} if config is None else {str(config.resolve()): file_sha256(str(config))}
    return Answer(steps, files=_imported_files() | described)


def _imported_files() -> dict[str, str]:
    """Return digests of the files of modules that are neither installed nor ours."""
    places = sysconfig.get_paths()
    installed = [Path(places[each]) for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {
        file: file_sha256(file)
        for file in sorted(filter(None, files))
        if not any(Path(file).is_relative_to(each) for each in (*installed, _OURS / "calibration", _OURS / "vdnnsim"))
    }
