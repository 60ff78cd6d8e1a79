"""What a scaling config asks for, as bundles of resources."""

from __future__ import annotations

from typing import Mapping, Sequence


class PlacementGroupFactory:
    """Bundles of resources, the head's first, and the strategy of placing them."""

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK"):
        if not bundles:
            raise ValueError("a placement group needs at least one bundle")
        self.bundles = [
            {name: float(amount) for name, amount in bundle.items() if amount != 0} for bundle in bundles
        ]
        self.strategy = strategy

    @property
    def head_bundle_is_empty(self) -> bool:
        return not self.bundles[0]

    @property
    def head_cpus(self) -> float:
        return self.bundles[0].get("CPU", 0.0)

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlacementGroupFactory):
            return NotImplemented
        return self.bundles == other.bundles and self.strategy == other.strategy

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self.bundles!r}, strategy={self.strategy!r})"
