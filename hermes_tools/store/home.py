"""Where things are: the home, its profiles, config.yaml, .env, the gateway's marks."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes_tools.store.errors import Missing, Usage


def home(given: Path | None = None) -> Path:
    """The agent's home: as given, else HERMES_HOME, else ~/.hermes."""
    if given is not None:
        return given
    named = os.environ.get("HERMES_HOME")
    return Path(named) if named else Path("~/.hermes").expanduser()


def profile_home(root: Path, profile: str) -> Path:
    """The home of a named profile; `default` is the root itself. Raises Missing: a name that does
    not exist must never fall back to the default's conversations.
    """
    if not profile or "/" in profile or profile in (".", ".."):
        raise Usage(f"no profile can be named {profile!r}")
    if profile == "default":
        return root
    place = root / "profiles" / profile
    if not place.is_dir():
        raise Missing(f"profile {profile!r}: no such folder: {place}")
    return place


def profiles(root: Path) -> list[tuple[str, Path]]:
    """(name, home) of every profile that has a store, the default first."""
    found = [("default", root)] if (root / "state.db").exists() else []
    folder = root / "profiles"
    if folder.is_dir():
        found += [
            (place.name, place) for place in sorted(folder.iterdir())
            if (place / "state.db").exists()
        ]  # fmt: skip
    return found


def config(home: Path) -> dict[str, Any]:
    """config.yaml of a home as a dictionary; {} where there is none or it is no mapping."""
    path = home / "config.yaml"
    if not path.exists():
        return {}
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            loaded = yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Usage(f"{path}: {' '.join(str(error).split())}") from error
    return loaded if isinstance(loaded, dict) else {}


def setting(config: dict[str, Any], path: str, default: Any = None) -> Any:
    """`sessions.auto_prune` from nested mappings; the default where anything is missing."""
    value: Any = config
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return default
        value = value[key]
    return value


def transcripts(folder: Path, session_id: str) -> Iterator[Path]:
    """Transcript files of earlier releases for a session, in the home's sessions folder."""
    if "/" not in session_id and "\0" not in session_id:
        for name in (f"{session_id}.jsonl", f"session_{session_id}.json", f"{session_id}.json"):
            if (folder / name).is_file():
                yield folder / name


def environment(home: Path) -> dict[str, str]:
    """The process environment with .env of the home over it, as the agent itself starts."""
    found = dict(os.environ)
    try:
        lines = (home / ".env").read_text("utf-8-sig", "replace").splitlines()
    except OSError:
        return found
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name = name.strip()
        if not equals or name.startswith("#") or not name.isidentifier():
            continue
        value = value.strip()
        if value[:1] in ("'", '"') and value.find(value[0], 1) > 0:
            value = value[1 : value.find(value[0], 1)]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name] = value
    return found


def sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
