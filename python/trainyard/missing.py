"""A name that a module does not have, told with the one that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that differs in its case alone, or in a few letters; "torch.TorchTrainer" is known by its last part, too."""
    import difflib

    lower = {other.rpartition(".")[2].lower(): other for other in sorted(known, reverse=True)}
    found = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[found[0]] if found else None


class MissingName(AttributeError):
    """Looks for what was meant when it is read: imports of submodules raise it too, which nobody reads."""

    def __init__(self, module: str, name: str, known: Iterable[str] = ()):
        super().__init__(module, name, known)

    def __str__(self) -> str:
        module, name, known = self.args
        near = nearest(name, known)
        return f"module {module!r} has no attribute {name!r}" + (f"; did you mean {near!r}?" if near else "")
