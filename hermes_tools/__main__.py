"""Runs the command named by the first argument; what bin/ calls."""

import os
import sys
from importlib import import_module


def main() -> None:
    """Hand `hermes-session-NAME` to its module, with the remaining arguments as its own."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    verb = name.removeprefix("hermes-session-")
    if not verb.isalpha() or verb == name:
        sys.exit("usage: python -m hermes_tools hermes-session-NAME [ARGUMENT]...")
    sys.argv[:2] = [name]
    import_module(f"hermes_tools.commands.{'import_' if verb == 'import' else verb}").main()


if __name__ == "__main__":
    if not __package__:  # run by path: what Python put first is this folder, not the one above
        sys.path[0] = os.path.dirname(os.path.realpath(__file__)).rpartition(os.sep)[0]
    main()
