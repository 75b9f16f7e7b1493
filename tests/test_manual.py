"""The manual is true: it can be parsed, names every option, and its examples run."""

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Run
from scripts import NO_STORE, SCRIPTS, every, module_file, need, short

from hermes_tools.console.status import Status

MAN = ROOT / "man"
TOUR = MAN / "man7" / "hermes-tools.7"
PAGES = sorted(MAN.glob("man?/*.?"))
# mdoc's ways of writing what a shell reads literally.
ESCAPES = {r"\e": "\\", r"\&": "", r"\-": "-", r"\(aq": "'", r"\(dq": '"', r"\(ti": "~",
           r"\(ha": "^", r"\(ga": "`", r"\(rs": "\\", r"\(en": "–"}  # fmt: skip


def page(script: str) -> Path:
    """The page of a script."""
    return MAN / "man1" / f"{script}.1"


def unescaped(line: str) -> str:
    """A line of a literal block as it is shown."""
    line = line.removeprefix(r"\&")
    return re.sub(r"\\(?:\(\w\w|[e&-])", lambda found: ESCAPES[found[0]], line)


def section(text: str, name: str) -> str:
    """The text of a section (.Sh NAME), '' where there is none."""
    found = re.search(rf"^\.Sh \"?{name}\"?$(.*?)(?=^\.Sh |\Z)", text, re.M | re.S)
    return found[1] if found else ""


def flags(text: str) -> set[str]:
    """Every option named by an .Fl macro. `.Fl q , -quiet` and `.Fl q , Fl -quiet` name two."""
    found: set[str] = set()
    for line in text.splitlines():
        if not line.startswith("."):
            continue
        inside = False
        for word in line[1:].split():
            if word == "Fl":
                inside = True
            elif word in (",", "|", "/"):
                continue
            elif inside and re.fullmatch(r"-?[A-Za-z0-9][\w-]*", word) and word not in MACROS:
                found.add(f"-{word}")
            else:
                inside = False
    return found


MACROS = {"Ar", "Cm", "Ns", "Op", "Oo", "Oc", "Nm", "Xr", "Ql", "Dq", "Pa", "Ev", "Va", "No", "Ta"}


def listed(text: str) -> set[str]:
    """The options a page explains: those at the head of a list's item."""
    return flags("\n".join(line for line in text.splitlines() if line.startswith(".It Fl")))


def examples(path: Path) -> list[str]:
    """The command lines of a page's EXAMPLES; they begin with `$ `, and go on indented while a
    line ends in a backslash, a pipe or an operator.
    """
    found: list[str] = []
    going_on = False
    for block in re.findall(r"^\.Bd -literal.*?$(.*?)^\.Ed", section(path.read_text(), "EXAMPLES"),
                            re.M | re.S):  # fmt: skip
        for line in map(unescaped, block.strip("\n").split("\n")):
            if line.startswith("$ "):
                found.append(line[2:])
            elif going_on and line.startswith((" ", ">", "\t")):
                found[-1] += "\n" + line.lstrip("> \t")
            else:
                continue
            going_on = line.rstrip().endswith(("\\", "|", "&&", "||"))
    return found


# --- Pages ---


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lint(path: Path) -> None:
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not installed")
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path], capture_output=True)
    assert not done.stdout and done.returncode == 0, done.stdout.decode()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_apropos_can_find_it(path: Path) -> None:
    if not shutil.which("lexgrog"):
        pytest.skip("lexgrog (man-db) is not installed")
    done = subprocess.run(["lexgrog", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f'"{path.stem} - ' in done.stdout


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_sections_stand_in_the_usual_order(path: Path) -> None:
    usual = ["NAME", "SYNOPSIS", "DESCRIPTION", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES",
             "DIAGNOSTICS", "COMPATIBILITY", "SEE ALSO", "STANDARDS", "HISTORY", "AUTHORS",
             "CAVEATS", "BUGS"]  # fmt: skip
    names = re.findall(r"^\.Sh \"?(.*?)\"?$", path.read_text(), re.M)
    known = [name for name in names if name in usual]
    assert known == sorted(known, key=usual.index)
    wanted = {"NAME", "DESCRIPTION"}
    if path.parent.name == "man1":
        wanted |= {"SYNOPSIS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"}
    assert wanted <= set(names), f"missing: {wanted - set(names)}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_what_is_referred_to_exists(path: Path) -> None:
    for name, number in re.findall(r"\.Xr (hermes-[\w-]+) (\d)", path.read_text()):
        if number == "1":
            assert name in SCRIPTS, name
            continue
        assert (MAN / f"man{number}" / f"{name}.{number}").exists(), f"{name}({number})"


@every(SCRIPTS)
def test_name_line_is_the_modules_docstring(script: str) -> None:
    need(script)
    first = (ast.get_docstring(ast.parse(module_file(script).read_text())) or "").split("\n")[0]
    text = page(script).read_text()
    name = re.search(r"^\.Sh NAME\n\.Nm (\S+)\n\.Nd (.+)$", text, re.M)
    assert name, "the NAME section is two lines"
    assert first.rstrip(".") == f"{name[1]}: {name[2]}"
    assert f".Dt {script.upper()} 1" in text


@every(SCRIPTS)
def test_page_and_help_name_the_same_options(script: str, run: Run) -> None:
    need(script)
    from test_contract import options

    text = page(script).read_text()
    helped = options(script, run)
    explained = listed(text)
    # What all commands share is explained once, in hermes-tools(7), by pages that say so.
    shared = listed(TOUR.read_text()) if ".Xr hermes-tools 7" in text else set()
    # -h and --help may be written as one entry; either way both must be told.
    assert helped <= explained | shared, f"not in the manual: {helped - explained - shared}"
    assert explained <= helped, f"not in --help: {explained - helped}"
    assert flags(section(text, "SYNOPSIS")) <= helped


def test_the_tour_explains_only_what_exists(run: Run) -> None:
    from test_contract import options

    known: set[str] = set()
    for script in SCRIPTS:
        if module_file(script).exists():
            known |= options(script, run)
    assert listed(TOUR.read_text()) <= known


# --- The same set everywhere ---


def test_scripts_links_pages_modules_and_tables_agree() -> None:
    names = set(SCRIPTS)
    assert len(names) == 25
    assert {path.name for path in (ROOT / "bin").glob("hermes-session-*")} == names
    modules = {path.stem for path in (ROOT / "hermes_tools" / "commands").glob("*.py")}
    assert {f"hermes-session-{name.strip('_')}" for name in modules - {"__init__"}} <= names
    assert {path.stem for path in (MAN / "man1").glob("*.1")} <= names
    tour = TOUR.read_text()
    assert set(re.findall(r"^\.It Xr (hermes-session-\w+) 1$", tour, re.M)) == names
    readme = (ROOT / "README.md").read_text()
    assert set(re.findall(r"^\| \[?`(hermes-session-\w+)`", readme, re.M)) == names


@every(SCRIPTS)
def test_every_script_is_whole(script: str) -> None:
    """Module and page belong together."""
    need(script)
    assert page(script).exists(), f"man/man1/{script}.1 is missing"


def test_statuses_are_told() -> None:
    text = section(TOUR.read_text(), "EXIT STATUS")
    assert {int(number) for number in re.findall(r"^\.It (\d+)$", text, re.M)} == set(Status)


@every(SCRIPTS)
def test_statuses_of_a_page_exist(script: str) -> None:
    need(script)
    text = section(page(script).read_text(), "EXIT STATUS")
    told = {int(number) for number in re.findall(r"^\.It (?:Li |Er )?(\d+)", text, re.M)}
    assert told <= set(Status)
    assert told or "hermes-tools 7" in text


# --- Examples ---


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_examples_run(path: Path, run: Run, home, tmp_path: Path) -> None:
    lines = examples(path)
    if path.parent.name == "man1":
        assert lines, "a page without an example"
    for script in set(re.findall(r"hermes-session-\w+", "\n".join(lines))) & set(SCRIPTS):
        need(script)
    place = tmp_path / "work"
    place.mkdir()
    env = {"HERMES_HOME": home("v22"), "TERM": "dumb"}
    for line in lines:
        for tool in ("jq", "fzf", "sqlite3", "ssh", "parallel", "duckdb", "gzip", "zstd"):
            if re.search(rf"(^|[|;&(]\s*){tool}\b", line) and not shutil.which(tool):
                pytest.skip(f"{tool} is not installed")
        # A search that finds nothing or a faulty check is no good example; all give 0.
        done = run.shell(f"set -o pipefail\n{line}", env=env, cwd=place)
        assert done.status == 0, f"{line}\n{done.text}\n{done.stderr}"
        assert "Traceback" not in done.stderr


def test_examples_use_what_they_show() -> None:
    """The reader of examples here understands what the pages write."""
    assert "hermes-session-list -n 5" in examples(TOUR)
    joined = [line for line in examples(TOUR) if "\n" in line]
    assert joined and all(line.count("hermes-session-") >= 2 for line in joined)


# --- man(1) finds them ---


def test_man_finds_the_pages() -> None:
    if not shutil.which("man") or not shutil.which("lexgrog"):
        pytest.skip("man is not installed")
    env = {**os.environ, "MANPATH": str(MAN), "MANPAGER": "cat", "PAGER": "cat", "LC_ALL": "C"}
    done = subprocess.run(["man", "-w", "hermes-tools"], capture_output=True, text=True, env=env)
    if done.returncode and "not been installed" in done.stdout + done.stderr:
        pytest.skip("man is only a placeholder here")
    assert done.stdout.strip() == str(TOUR), done.stderr


def test_nothing_is_left_out() -> None:
    """Scripts without a store are few and known."""
    assert {short(name) for name in SCRIPTS} >= NO_STORE
