"""The house stands: everything can be imported, every script answers, arrows run one way."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from conftest import ROOT
from scripts import SCRIPTS, every, need

PACKAGE = ROOT / "hermes_tools"
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
SQL = re.compile(r"\b(SELECT\b.+\bFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|PRAGMA)\b")
# Who may be asked by whom (design: commands → console → store; sessiondb → store).
ARROWS = {
    "commands": {"console", "store", ""},
    "console": {"store", ""},
    "store": set(),
    "sessiondb": {"store", ""},
}


def name_of(path: Path) -> str:
    """hermes_tools/store/db.py → hermes_tools.store.db."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The room a module of ours lies in: store, console, commands, sessiondb, or '' (the root)."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ARROWS else ""


def imports(path: Path) -> set[str]:
    """Every module a file imports, wherever in the file that is done."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports(path: Path) -> None:
    module = importlib.import_module(name_of(path))
    assert (module.__doc__ or "").strip(), "every module says what it is"


@every(SCRIPTS)
def test_script_answers(script: str, run) -> None:
    need(script)
    assert run(script, "--version").ok().lines == [f"{script} (hermes-tools) {version()}"]
    shown = run(script, "--help").ok()
    assert shown.text.lstrip().startswith(f"Usage: {script} ")
    assert not shown.stderr


def version() -> str:
    """The literal in hermes_tools/__init__.py."""
    return importlib.import_module("hermes_tools").__version__


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_arrows_run_one_way(path: Path) -> None:
    room = room_of(name_of(path))
    if not room:
        return
    ours = {module for module in imports(path) if module.startswith("hermes_tools.")}
    wrong = {
        module for module in ours if room_of(module) != room and room_of(module) not in ARROWS[room]
    }
    assert not wrong, f"{room} must not ask {wrong}"
    assert room == "commands" or not any(room_of(module) == "commands" for module in ours)


@pytest.mark.parametrize(
    "path", [path for path in MODULES if room_of(name_of(path)) == "store"], ids=name_of
)
def test_the_store_knows_no_people(path: Path) -> None:
    assert not {"typer", "click", "rich"} & {module.split(".")[0] for module in imports(path)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno} prints"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            stream = node.value.id == "sys" and node.attr in ("stdout", "stdin", "stderr", "exit")
            assert not stream, f"line {node.lineno} touches sys.{node.attr}"


@pytest.mark.parametrize(
    "path", [path for path in MODULES if room_of(name_of(path)) == "commands"], ids=name_of
)
def test_commands_hold_no_sql(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not SQL.search(node.value), f"line {node.lineno}: {node.value[:60]!r}"
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("execute", "executemany", "executescript"), node.lineno
    assert "sqlite3" not in imports(path)
