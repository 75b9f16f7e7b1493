"""The Unix toolkit for the conversation history of Hermes Agent."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the Python interface only for those who ask for it: scripts start without it."""
    if name == "SessionDB":
        from importlib import import_module

        return import_module("hermes_tools.sessiondb").SessionDB
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
