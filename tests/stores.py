"""Stores built by hand, after what is known of each schema."""

from pathlib import Path

NAMES: tuple[str, ...] = ()


def build(name: str, path: Path) -> None:
    """Build the store of that name."""
    raise KeyError(name)
