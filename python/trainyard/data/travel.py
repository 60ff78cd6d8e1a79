"""How the data sets of a trainer reach the workers: by pickle, what is large in it as bytes that the driver lends. Workers see
these as memory that all of them share, and nothing is copied."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
from typing import Any, Iterator

from .. import payload

SMALL = 1 << 20  # bytes that go with the rest
_ALIGNED = 64


@contextlib.contextmanager
def lent(objects: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What `received` makes the objects of again, as long as the block lasts. The context in it is there at once."""
    buffers: list[pickle.PickleBuffer] = []
    first = {"context": objects["context"]}
    data = payload.pickled(objects, buffers.append)
    sizes = [buffer.raw().nbytes for buffer in buffers]
    if sum(sizes) <= SMALL:
        yield {**first, "data": data, "buffers": [bytes(buffer.raw()) for buffer in buffers]}
        return
    with payload.lent([buffer.raw() for buffer in buffers], _ALIGNED) as (place, spans):
        yield {**first, "data": data, "place": place, "spans": spans}


def received(sent: dict[str, Any]) -> Any:
    if "place" not in sent:
        return pickle.loads(sent["data"], buffers=sent["buffers"])
    fd = payload.borrowed(**sent["place"])
    try:
        shared = memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    finally:
        os.close(fd)
    return pickle.loads(sent["data"], buffers=[shared[start : start + size] for start, size in sent["spans"]])
