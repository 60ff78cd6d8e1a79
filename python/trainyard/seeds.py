"""Random numbers of forked workers: as those of spawned ones.

A spawned worker draws numbers of its own, unless a module that it imports seeds the generator: then every worker draws the
same. A forked one has the generators of its template. So each template notes how they are before the user's modules are
loaded, and a worker renews those that were not seeded since; what was seeded goes on from there.
"""

from __future__ import annotations

import random
import sys
from typing import Any

_DRAWS_MOST = 64  # times 624 numbers of 32 bits: as much may have been drawn since without a seed

_noted: dict[str, Any] = {}


def note() -> None:
    """The generators are as nobody has seeded them."""
    _noted["random"] = random.getstate()
    _noted["numpy"] = _numpy_state()
    _noted["torch"] = _torch_seed()


def before_fork() -> None:
    """In the process that forks: `random` forgets its state in each child, even where it was seeded."""
    _noted["forked"] = random.getstate()


def renew() -> None:
    """In a worker that was forked."""
    if _random_seeded():
        random.setstate(_noted["forked"])
    if "numpy.random" in sys.modules and not _numpy_seeded():
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules and not _torch_seeded():
        sys.modules["torch"].default_generator.seed()


def _random_seeded() -> bool:
    """Whether drawing alone cannot have led from the noted state to that of the fork."""
    start, forked = _noted.get("random"), _noted.get("forked")
    if start is None or forked is None:
        return False
    generator = random.Random()
    generator.setstate(start)
    for _ in range(_DRAWS_MOST):
        if generator.getstate()[1][:-1] == forked[1][:-1]:  # the last one is the place in the others
            return False
        generator.getrandbits(32 * 624)
    return True


def _numpy_state() -> tuple[bytes, int] | None:
    """None as long as nobody has seeded it: a generator that was made, and not seeded, has a sequence that its state comes of."""
    numpy_random = sys.modules.get("numpy.random")
    bits = getattr(getattr(getattr(numpy_random, "mtrand", None), "_rand", None), "_bit_generator", None)
    if getattr(bits, "_seed_seq", bits) is not None or bits is None:
        return None
    state = bits.state["state"]
    return state["key"].tobytes(), state["pos"]


def _numpy_seeded() -> bool:
    state = _numpy_state()
    return state is not None and state != _noted.get("numpy")


def _torch_seed() -> int | None:
    torch = sys.modules.get("torch")
    generator = getattr(torch, "default_generator", None)
    return generator.initial_seed() if generator is not None else None


def _torch_seeded() -> bool:
    """Unseeded ones have a seed of 64 random bits; what people give is small."""
    seed, noted = _torch_seed(), _noted.get("torch")
    if seed is None or noted is not None:
        return seed is None or seed != noted
    return seed < 1 << 32
