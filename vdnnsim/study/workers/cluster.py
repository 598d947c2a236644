"""Workers of a Dask cluster that compute chunks; the only home of Dask.

The scheduler gives the chunks of a worker that was lost to the others. Workers need this version of vdnnsim, and the
kernel tables of measured machines under the same paths; points come to them with everything else.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from vdnnsim.errors import StudyError
from vdnnsim.messages import describe_exception, one_line
from vdnnsim.study.workers.chunk import Chunk, Finished, Workers, compute_chunk

_AHEAD = 2
"""Chunks that wait for each thread of the cluster, so that none waits for a chunk."""

_CONNECT_S = 10


def cluster_workers(address: str) -> Workers:
    """Return the workers of the cluster whose scheduler listens at an address."""
    return lambda chunks: _compute(chunks, address)


def _compute(chunks: Iterator[Chunk], address: str) -> Iterator[Finished]:
    with _client(address) as client:
        threads = sum(client.nthreads().values())
        begun = islice(chunks, _AHEAD * max(1, threads))
        waiting = _as_completed([client.submit(compute_chunk, chunk, pure=False) for chunk in begun], client)
        for future in waiting:
            try:
                finished: Finished = future.result()
            except StudyError:
                raise
            except Exception as failure:  # noqa: BLE001  # whatever a cluster may answer
                raise StudyError(f"--cluster: {address}: {describe_exception(failure)}") from None
            future.release()
            for chunk in islice(chunks, 1):
                waiting.add(client.submit(compute_chunk, chunk, pure=False))
            yield finished


def _client(address: str) -> Any:  # noqa: ANN401  # Dask's client has no types
    try:
        from distributed import Client
    except ImportError:
        raise StudyError("--cluster: Dask is not installed, expected `pip install vdnnsim[cluster]`") from None
    try:
        return Client(address, timeout=_CONNECT_S, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as failure:
        raise StudyError(f"--cluster: {address}: no scheduler answers: {one_line(str(failure))}") from None


def _as_completed(futures: list[Any], client: Any) -> Any:  # noqa: ANN401  # as the client
    from distributed import as_completed

    return as_completed(futures, loop=client.loop)  # type: ignore[no-untyped-call]
