"""Dask clusters that compute chunks of points of a study; no other module imports Dask.

The scheduler reassigns the chunks of a lost worker. Workers need this version of vdnnsim, and kernel tables under the
same paths; points bring everything else.
"""

import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from vdnnsim.errors import StudyError
from vdnnsim.files.messages import describe_exception, one_line
from vdnnsim.study.sweep import Chunk, Finished, Workers, compute_chunk

_AHEAD = 2
"""Queued chunks for each thread of the cluster."""

_CONNECT_S = 10
_PATIENCE_S = 60
"""How long a cluster may have no worker: a lost one may be replaced."""
_GLANCE_S = 0.02
_LOST: Final = "the scheduler was lost; finished points are kept, and the same command continues"
_ADDRESS: Final = re.compile(r"(?:(tcp|tls)://)?(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_LARGEST_PORT: Final = 65_535


def cluster_workers(address: str) -> Workers:
    """Return the workers of a cluster by the address of its scheduler.

    Raises:
        StudyError: the address is malformed.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[2]) <= _LARGEST_PORT:
        raise StudyError(f"--cluster: found {address!r}, expected the address of a scheduler, as tcp://HOST:PORT")
    return lambda chunks: _compute(chunks, address, secure=found[1] == "tls")


def _compute(chunks: Iterator[Chunk], address: str, *, secure: bool) -> Iterator[Finished]:
    with _silence(), _client(address, secure=secure) as client:
        from distributed import as_completed

        threads = sum(client.nthreads().values())
        begun = islice(chunks, _AHEAD * max(1, threads))
        futures = [client.submit(compute_chunk, chunk, pure=False) for chunk in begun]
        waiting: Any = as_completed(futures, loop=client.loop)  # type: ignore[no-untyped-call]
        while waiting.count():
            try:
                finished = _next(waiting, client)
            except StudyError as failure:
                raise StudyError(f"--cluster: {address}: {failure}") from None
            except Exception as failure:  # noqa: BLE001  # of any of the cluster's libraries
                message = f"{describe_exception(failure)}; finished points are kept, and the same command continues"
                raise StudyError(f"--cluster: {address}: {message}") from None
            for chunk in islice(chunks, 1):
                waiting.add(client.submit(compute_chunk, chunk, pure=False))
            yield finished


def _next(waiting: Any, client: Any) -> Finished:  # noqa: ANN401  # Dask's have no types
    working = time.monotonic()
    while not waiting.has_ready():
        time.sleep(_GLANCE_S)
        if client.status != "running":
            raise StudyError(_LOST)
        if time.monotonic() - working > _PATIENCE_S:
            if not client.nthreads():
                why = f"has had no worker for {_PATIENCE_S} s"
                raise StudyError(f"{why}; finished points are kept, and the same command continues")
            working = time.monotonic()
    future = next(waiting)
    try:
        finished: Finished = future.result()
    except OSError:  # the scheduler died; a worker that cannot read a file returns an outcome
        raise StudyError(_LOST) from None
    future.release()
    return finished


@contextmanager
def _silence() -> Iterator[None]:
    """Disable the logs of Dask: an error is one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _client(address: str, *, secure: bool) -> Any:  # noqa: ANN401  # Dask's client has no types
    try:
        from distributed import Client
        from distributed.security import Security
    except ImportError:
        raise StudyError("--cluster: Dask is not installed, expected `pip install vdnnsim[cluster]`") from None
    if secure and Security().get_connection_args("client").get("ssl_context") is None:  # type: ignore[no-untyped-call]
        why = "Dask knows no certificates, expected distributed.comm.tls in its configuration"
        raise StudyError(f"--cluster: {address}: {why}")
    try:
        return Client(address, timeout=_CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as failure:
        raise StudyError(f"--cluster: {address}: no scheduler answers: {one_line(str(failure))}") from None
