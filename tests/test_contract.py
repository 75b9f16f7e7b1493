"""What every script promises, whatever it does: syntax, streams, statuses, paths, locks."""

import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Run
from scripts import CLI, NO_STORE, READERS, RECORD, SCRIPTS, WRITERS, Call, every, need, short

from hermes_tools.console.status import Status

STORE_READERS = [name for name, call in READERS.items() if call.store]
# The same letter means the same everywhere.
LETTERS = {
    "-0": "--null", "-f": "--format", "-h": "--help", "-n": "--limit", "-o": "--output",
    "-q": "--quiet", "-t": "--text", "-v": "--verbose",
}  # fmt: skip
COMMON = {"--db", "--home", "--profile", "--timeout", "--quiet", "--verbose", "--help", "--version"}
HEAVY = {"click", "rich", "pydantic", "sqlite_utils", "importlib.metadata", "yaml", "ijson",
         "wcwidth", "detect_secrets", "apprise", "hypothesis", "hashlib", "secrets"}  # fmt: skip


def verbs(script: str, run: Run) -> list[str]:
    """The verbs of a script that has some, else ['']."""
    shown = run(script, "--help").text
    if "\nCommands:" not in shown:
        return [""]
    return re.findall(r"^  (\w+)", shown.partition("\nCommands:")[2], re.M)


def options(script: str, run: Run) -> set[str]:
    """Every option --help names, over all verbs."""
    found: set[str] = set()
    for verb in verbs(script, run):
        shown = run(script, *([verb] if verb else []), "--help").ok().text
        found |= option_names(shown)
        if verb:
            found |= option_names(run(script, "--help").text)
    return found


def option_names(shown: str) -> set[str]:
    """The options a --help text declares: at the start of its lines."""
    found: set[str] = set()
    for line in shown.splitlines():
        if re.match(r"  -", line):
            head = re.split(r"\s{2,}", line.strip())[0]
            found |= set(re.findall(r"(?<![\w-])--?[\w][\w-]*", head))
    return found


def digest(path: Path) -> str:
    """The bytes of a file, and when they were written."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"


def folder(path: Path) -> set[str]:
    """Names in a folder, without what SQLite itself keeps beside an open WAL store."""
    return {name for name in os.listdir(path) if not name.endswith(("-wal", "-shm"))}


def arguments(call: Call, path: Path, *more: Any) -> list[Any]:
    """The arguments of a call on a store."""
    argv: list[Any] = []
    for word in call.argv:
        if word == "FILE":
            spare = path.parent.parent / "spare.db"
            if not spare.exists():
                shutil.copy(path, spare)
            argv.append(spare)
        else:
            argv.append(word)
    # Options of a script with verbs stand after the verb.
    return [*argv, *(["--db", path] if call.store else []), *more]


def one_line(words: str, script: str) -> None:
    """A complaint: one line, that begins with the program's name, and no traceback. restore says
    before it what it would replace.
    """
    more = "+" if script == "restore" else ""
    assert re.fullmatch(rf"(hermes-session-{short(script)}: [^\n]+\n){more}", words), words


def names_hint(words: str, script: str) -> None:
    """A usage error: what is wrong, and where help is."""
    assert words.startswith(f"hermes-session-{short(script)}: "), words
    assert f"Try 'hermes-session-{short(script)} --help'." in words
    assert "Traceback" not in words


# --- Syntax ---


@every(SCRIPTS)
def test_help_touches_nothing(script: str, run: Run, tmp_path: Path) -> None:
    need(script)
    for flag in ("--help", "-h"):
        shown = run(script, flag, env={"HERMES_DB": tmp_path / "none" / "x.db"}).ok()
        assert shown.text.lstrip().startswith("Usage: ") and not shown.stderr
    assert not list(tmp_path.iterdir())
    for verb in verbs(script, run):
        words = run(script, *([verb] if verb else []), "--help").ok().text
        body = words.partition("\n\n")[2].strip()
        assert body and not body.startswith(("Options:", "Store:")), "--help says what it does"
        for line in words.splitlines():
            assert len(line) <= 100, line


@every(SCRIPTS)
def test_options_mean_the_same_everywhere(script: str, run: Run) -> None:
    need(script)
    found = options(script, run)
    for letter, long in LETTERS.items():
        assert (letter not in found) or long in found, f"{letter} without {long}"
    assert {name for name in found if len(name) == 2} <= set(LETTERS)
    wanted = COMMON - ({"--db", "--home", "--profile", "--timeout", "--verbose"}
                       if short(script) in NO_STORE else set())  # fmt: skip
    assert wanted <= found, f"missing: {wanted - found}"
    assert not [name for name in found if name.startswith("--no-") and name != "--no-backup"]
    assert "--force" not in found


@every(SCRIPTS)
def test_unknown_and_abbreviated_options(script: str, run: Run) -> None:
    need(script)
    for verb in verbs(script, run):
        for bad in ("--no-such-option", "--hel"):
            result = run(script, *([verb] if verb else []), bad).gave(2)
            assert not result.stdout
            assert bad in result.stderr
            names_hint(result.stderr, script)


@every(["show", "title", "export", "delete", "archive", "end", "append", "resume", "scroll"])
def test_two_dashes_end_the_options(script: str, run: Run, store) -> None:
    need(script)
    path = store("v22")
    more = ["--yes"] if script == "delete" else []
    rest = ["1"] if script == "scroll" else []
    result = run(script, "--db", path, *more, "--", "-n-odd-id", *rest, input="")
    assert result.status == 1, result.stderr
    assert "-n-odd-id" in result.stderr and not result.stdout


@every(STORE_READERS)
def test_bad_values_are_usage_errors(script: str, run: Run, store) -> None:
    need(script)
    path = store("v22")
    for bad in ("-1", "nan", "inf", "soon", ""):
        result = run(script, *arguments(READERS[script], path, "--timeout", bad), input="")
        assert result.status == 2 and not result.stdout, (bad, result.stderr)


@every(["list", "stats", "export", "prune", "search"])
def test_selections_that_make_no_sense(script: str, run: Run, store) -> None:
    need(script)
    path = store("v22")
    call = READERS[script]
    for bad in (
        ["--older-than", "-3d"], ["--older-than", "nan"], ["--older-than", ""],
        ["--newer-than", "inf"], ["--after", "2999-01-01"], ["--after", "someday"],
        ["--before", "2026-01-01", "--after", "2026-02-01"], ["--archived", "perhaps"],
        ["--min-messages", "-1"], ["--min-messages", "5", "--max-messages", "2"],
        ["--min-cost", "nan"], ["--open", "--ended"], ["--source", ""], ["--user", ""],
        ["--model", " "], ["--cwd", ""], ["--title-like", ""],
    ):  # fmt: skip
        result = run(script, *arguments(call, path, *bad), input="")
        assert result.status == 2 and not result.stdout, (bad, result.status, result.stderr)
    result = run(script, *arguments(call, path, "--source", "nowhere"), input="")
    assert result.status == 1 and not result.stdout
    assert "telegram" in result.stderr, "names the sources that are there"


# --- No store, no right store ---


def every_call() -> list[Any]:
    """Each reading and writing call, by name."""
    return [
        pytest.param(name, call, id=f"{name}-{kind}")
        for kind, calls in (("read", READERS), ("write", WRITERS))
        for name, call in calls.items()
        if call.store
    ]


@pytest.mark.parametrize(("script", "call"), every_call())
def test_a_missing_store_is_not_made(script: str, call: Call, run: Run, store, tmp_path) -> None:
    need(script)
    if script == "restore":
        pytest.skip("restoring to where nothing is is what restore is for")
    place = tmp_path / "empty"
    place.mkdir()
    result = run(script, *arguments(call, place / "none.db"), input=call.input)
    assert result.status == Status.MISSING, result.stderr
    assert not result.stdout
    one_line(result.stderr, script)
    assert not list(place.iterdir())
    home = run(script, *call.argv, "--home", place / "nobody", input=call.input)
    assert home.status == Status.MISSING and not list(place.iterdir())
    unknown = run(script, *call.argv, "--home", store("v22").parent, "--profile", "nobody",
                  input=call.input)  # fmt: skip
    assert unknown.status == Status.MISSING, "an unknown profile never means the default one"


def broken(kind: str, place: Path, sound: Path) -> Path:
    """A file that is no store."""
    path = place / "state.db"
    data = sound.read_bytes()
    if kind == "folder":
        path.mkdir()
    elif kind == "foreign":
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE addresses (name TEXT)")
    else:
        path.write_bytes({
            "text": b"Dear diary,\n" * 500, "empty": b"", "zeroed": bytes(len(data)),
            "half": data[: len(data) // 2 // 4096 * 4096], "header": data[:100],
        }[kind])  # fmt: skip
    return path


@pytest.mark.parametrize(
    "kind", ["folder", "text", "empty", "zeroed", "half", "header", "foreign"]
)
@pytest.mark.parametrize(("script", "call"), every_call())
def test_a_file_that_is_no_store(
    script: str, call: Call, kind: str, run: Run, store, tmp_path: Path
) -> None:
    need(script)
    place = tmp_path / "odd"
    place.mkdir()
    sound = store("v22")
    path = broken(kind, place, sound)
    if "FILE" in call.argv:
        shutil.copy(sound, tmp_path / "spare.db")
    before = digest(path) if path.is_file() else ""
    if script == "restore":
        pytest.skip("a damaged store is what restore replaces")
    result = run(script, *arguments(call, path), input=call.input)
    # check finds faults, and says where; it alone may answer on standard output.
    allowed = {Status.DATA, Status.MISSING} | ({Status.NEGATIVE} if script == "check" else set())
    assert result.status in allowed, (result.status, result.stderr)
    if result.status != Status.NEGATIVE:
        assert not result.stdout
        one_line(result.stderr, script)
    assert (digest(path) if path.is_file() else "") == before
    assert folder(place) == {"state.db"}


# --- Reading leaves everything alone, and answers alike everywhere ---


@every(READERS)
def test_readers_leave_the_bytes_alone(script: str, run: Run, store) -> None:
    need(script)
    call = READERS[script]
    path = store("v22")
    before = digest(path), folder(path.parent)
    first = run(script, *arguments(call, path), input=call.input)
    assert first.status == call.status, (first.status, first.stderr)
    assert (digest(path), folder(path.parent)) == before
    again = run(script, *arguments(call, path), input=call.input)
    assert again.stdout == first.stdout, "two runs give the same bytes"
    if script not in ("resume", "title", "backup", "show"):
        assert first.records is not None  # each line is a whole JSON object


@every([name for name in READERS if name != "backup"])
def test_quiet_says_nothing(script: str, run: Run, store) -> None:
    need(script)
    call = READERS[script]
    result = run(script, *arguments(call, store("v22"), "-q"), input=call.input)
    assert result.status == call.status and not result.stdout, result.stderr


@every(READERS)
def test_the_same_bytes_in_every_surrounding(script: str, run: Run, store) -> None:
    need(script)
    if script == "backup":
        pytest.skip("a copy of the store, no text")
    call = READERS[script]
    path = store("v22")
    plain = run.process(script, *arguments(call, path), input=call.input)
    assert plain.status == call.status, plain.stderr
    bare = {"LANG": None, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0",
            "TERM": None}  # fmt: skip
    if script != "show":  # it tells a person the time where that person is
        bare["TZ"] = "Asia/Tokyo"
    there = run.process(script, *arguments(call, path), input=call.input, env=bare)
    assert (there.status, there.stdout) == (plain.status, plain.stdout), there.stderr
    # cron: no HOME, hardly a PATH, nothing on standard input but what the call itself reads.
    alone = run.process(script, *arguments(call, path), input=call.input,
                        prefix=["env", "-i", "PATH=/usr/bin:/bin"])  # fmt: skip
    assert (alone.status, alone.stdout) == (plain.status, plain.stdout), alone.stderr


@every([name for name in STORE_READERS if name not in ("backup",)])
def test_readers_load_no_more_than_they_need(script: str, run: Run, store) -> None:
    need(script)
    call = READERS[script]
    argv = [f"hermes-session-{script}", *map(str, arguments(call, store("v22")))]
    module = SCRIPTS[f"hermes-session-{script}"]
    program = (
        f"import sys, atexit; sys.argv = {argv!r}\n"
        "atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\n"
        f"from {module} import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], input=(call.input or "").encode(),
                          capture_output=True)  # fmt: skip
    assert done.returncode == call.status
    loaded = set(done.stderr.decode().split())
    assert "sqlite3" in loaded or script == "key"
    allowed = {"import": {"ijson", "hashlib"}, "migrate": {"sqlite_utils"}, "reset": {"yaml"},
               "delete": {"hashlib"}, "prune": {"hashlib"}}  # fmt: skip
    assert not loaded & HEAVY - allowed.get(script, set())


# --- Streams ---


@every(SCRIPTS)
def test_a_full_disk_is_said(script: str, run: Run) -> None:
    need(script)
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        result = run.process(script, "--help", stdout=full)
    assert result.status == Status.IO, result.stderr
    one_line(result.stderr, script)


@every([name for name, call in READERS.items() if call.store])
def test_data_into_a_full_disk(script: str, run: Run, store) -> None:
    need(script)
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    call = READERS[script]
    path = store("v22")
    plain = run(script, *arguments(call, path), input=call.input)
    with open("/dev/full", "wb") as full:
        result = run.process(script, *arguments(call, path), input=call.input, stdout=full)
    if not plain.stdout:
        assert result.status == plain.status
        return
    assert result.status == Status.IO, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith(f"hermes-session-{script}: ")


@every(READERS)
def test_a_reader_that_has_gone(script: str, run: Run, store) -> None:
    need(script)
    call = READERS[script]
    path = store("v22")
    plain = run(script, *arguments(call, path), input=call.input)
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        result = run.process(script, *arguments(call, path), input=call.input, stdout=theirs)
    finally:
        os.close(theirs)
    if plain.stdout:
        assert result.status in (Status.PIPE, -13), result.stderr
    assert result.stderr in ("", plain.stderr), "a closed pipe is no news"


@every(READERS)
def test_closed_descriptors(script: str, run: Run, store) -> None:
    need(script)
    call = READERS[script]
    path = store("v22")
    before = digest(path)
    words = " ".join(f"'{word}'" for word in run.located((script, *arguments(call, path))))
    plain = run(script, *arguments(call, path), input=call.input)
    source = f"printf %s '{call.input}' | " if call.input else ""
    out = run.shell(f"{source}{words} >&-")
    assert out.status in ((Status.IO,) if plain.stdout else (Status.IO, plain.status)), out.stderr
    assert "Traceback" not in out.stderr
    err = run.shell(f"{source}{words} 2>&-")
    assert (err.status, err.stdout) == (plain.status, plain.stdout)
    if not call.input:
        closed = run.shell(f"{words} <&-")
        assert (closed.status, closed.stdout) == (plain.status, plain.stdout), closed.stderr
    assert digest(path) == before, "no word of ours has landed in the store"


@every([name for name, call in {**READERS, **WRITERS}.items() if call.ids])
def test_ids_come_from_standard_input(script: str, run: Run, store) -> None:
    need(script)
    path = store("v22")
    more = ["--yes"] if script == "delete" else []
    for nothing in ("", "\n \r\n"):
        result = run(script, "--db", path, *more, input=nothing).ok()
        assert not result.stdout
    closed = run.shell(f"hermes-session-{script} --db '{path}' {' '.join(more)} <&-")
    assert closed.status == 2 and "Traceback" not in closed.stderr
    person = run(script, "--db", path, *more, tty=True)
    assert person.status == 2, "a person is not left waiting"
    unknown = run(script, "--db", path, *more, "-", input="no-such-id\n")
    assert unknown.status == 1 and not unknown.stdout and "no-such-id" in unknown.stderr
    prefix = run(script, "--db", path, *more, "-", input=CLI[:12] + "\n")
    assert prefix.status == 1, "from standard input only exact ids count"
    mixed = run(script, "--db", path, *more, "-", CLI, input="")
    assert mixed.status == 2
    bad = run(script, "--db", path, *more, "-", input=f"{CLI}\n{{broken\n")
    assert bad.status == 65 and "line 2" in bad.stderr and not bad.stdout
    record = json.dumps({"session_id": CLI})
    assert run(script, "--db", path, *more, "-", input=f"\ufeff{record}\r\n\n").ok().stdout


# --- Locks and rights ---


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The store as another process holds it in the middle of a write."""
    program = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "db.execute('BEGIN EXCLUSIVE'); db.execute('UPDATE schema_version SET version = version');"
        "print(flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(path)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert child.stdout is not None and child.stdin is not None
    child.stdout.readline()
    try:
        yield
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait()


@every(WRITERS)
def test_b135_writers_wait_and_then_say_busy(script: str, run: Run, store) -> None:
    need(script)
    call = WRITERS[script]
    path = store("v22")
    idle = run(script, *arguments(call, store("v22")), input=call.input)
    argv = arguments(call, path, "--timeout", "0.2")
    with held(path):
        result = run(script, *argv, input=call.input)
    if idle.status == 0 and not idle.stdout and script in ("deliver", "reset", "repair", "migrate"):
        assert result.status in (Status.BUSY, Status.OK)  # there was nothing to do
    else:
        assert result.status == Status.BUSY, (result.status, result.stderr)
        one_line(result.stderr, script)
        assert not result.stdout


@every(STORE_READERS)
def test_b135_readers_answer_beside_a_writer(script: str, run: Run, store) -> None:
    need(script)
    call = READERS[script]
    path = store("v22")
    plain = run(script, *arguments(call, path), input=call.input)
    with held(path):
        beside = run(script, *arguments(call, path, "--timeout", "0.2"), input=call.input)
    if script in ("stats", "check"):  # they measure the files and the lock as well
        assert beside.status == plain.status, beside.stderr
    else:
        assert (beside.status, beside.stdout) == (plain.status, plain.stdout), beside.stderr


@every(STORE_READERS)
def test_a_locked_store_in_rollback_mode(script: str, run: Run, store) -> None:
    need(script)
    call = READERS[script]
    path = store("v22")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = delete")
    with held(path):
        result = run(script, *arguments(call, path, "--timeout", "0.2"), input=call.input)
    assert result.status == Status.BUSY, (result.status, result.stderr)
    assert not result.stdout
    one_line(result.stderr, script)


@pytest.mark.parametrize(("script", "call"), every_call())
def test_b156_a_folder_that_may_not_be_written(
    script: str, call: Call, run: Run, store, unprivileged
) -> None:
    need(script)
    path = store("v22")
    argv = arguments(call, path)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    before = digest(path)
    try:
        result = run.process(script, *argv, input=call.input, prefix=unprivileged)
    finally:
        path.parent.chmod(0o755)
    if result.status == Status.DENIED:
        assert not result.stdout
        one_line(result.stderr, script)
        assert "-wal" not in result.stderr, "no advice to remove anything"
    else:
        plain = run(script, *argv, input=call.input)
        assert READERS.get(script) is call or not plain.stdout
        assert result.status == plain.status, result.stderr
    assert digest(path) == before


@pytest.mark.parametrize(("script", "call"), every_call())
@pytest.mark.parametrize("name", ["a#b?c d%", "line\nbreak", "пусто 空 🚀", b"\xff\xfe raw"])
def test_b158_paths_of_any_shape(
    script: str, call: Call, name: Any, run: Run, store, tmp_path: Path
) -> None:
    need(script)
    source = store("v22")
    place = tmp_path / (os.fsdecode(name) if isinstance(name, bytes) else name)
    try:
        shutil.copytree(source.parent, place / "home")
    except OSError:
        pytest.skip("this file system has no such names")
    plain = run(script, *arguments(call, source), input=call.input)
    result = run(script, *arguments(call, place / "home" / "state.db"), input=call.input)
    assert result.status == plain.status, result.stderr
    assert "Traceback" not in result.stderr
    if script not in ("backup",):
        assert len(result.stdout.splitlines()) == len(plain.stdout.splitlines())


@pytest.mark.parametrize(("script", "call"), every_call())
def test_the_store_is_found(script: str, call: Call, run: Run, home) -> None:
    """--db over --home over HERMES_DB over HERMES_HOME; a profile lies in its home."""
    need(script)
    place = home("v22")
    profile = place / "profiles" / "work"
    shutil.copytree(home("v11"), profile)
    argv = [word for word in arguments(call, place / "state.db") if word != "--db"]
    argv.remove(place / "state.db")

    def names(*more: Any, env: dict[str, Any] | None = None) -> str:
        return run(script, *argv, "-v", *more, env=env, input=call.input).stderr

    work, main = str(profile / "state.db"), str(place / "state.db")
    assert main in names(env={"HERMES_HOME": place})
    assert work in names(env={"HERMES_DB": work})
    assert work in names("--home", place, "--profile", "work")
    assert main in names("--home", place, env={"HERMES_DB": work})
    assert work in names("--db", work, "--home", place)


# --- Signals, and what should never happen ---


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_while_waiting(number: int, status: int, run: Run, store) -> None:
    """For ids that do not come, and for a lock: at once, in one line, nothing changed."""
    need("archive")
    path = store("v22")
    before = digest(path)
    with held(path):
        for argv in (["-"], [CLI, "--timeout", "60"]):
            child = run.start("archive", "--db", path, *argv)
            time.sleep(1.0)  # long enough to be waiting; early is as good
            child.send_signal(number)
            out, err = child.communicate(timeout=20)
            assert child.returncode in (status, -number), err
            assert not out and b"Traceback" not in err
            assert err.count(b"\n") <= 1
    assert digest(path) == before


def test_a_bug_is_one_line(run: Run, store, monkeypatch: pytest.MonkeyPatch) -> None:
    need("list")
    from hermes_tools.commands import list as module

    def broken(*given: Any, **named: Any) -> Any:
        raise ZeroDivisionError("made on purpose")

    for name in [name for name, value in vars(module).items() if callable(value)]:
        if getattr(getattr(module, name), "__module__", "").startswith("hermes_tools.store"):
            monkeypatch.setattr(module, name, broken)
    result = run("list", "--db", store("v22"))
    assert result.status == Status.BUG and not result.stdout
    one_line(result.stderr, "list")
    assert "HERMES_DEBUG" in result.stderr
    loud = run("list", "--db", store("v22"), env={"HERMES_DEBUG": "1"})
    assert loud.status == Status.BUG and "Traceback" in loud.stderr


# --- One table ---


def test_statuses_leave_room_for_the_shell() -> None:
    assert all(
        status <= 125 or status in (Status.INTERRUPTED, Status.PIPE, Status.TERMINATED)
        for status in Status
    )


@every(["delete", "prune", "restore", "reset"])
def test_b174_destroying_commands_refuse_where_nobody_can_answer(
    script: str, run: Run, store
) -> None:
    need(script)
    call = WRITERS[script]
    path = store("v22")
    before = digest(path)
    argv = [word for word in arguments(call, path) if word != "--yes"]
    for source in ({"input": ""}, {"stdin": subprocess.DEVNULL}):
        result = run.process(script, *argv, **source)
        assert result.status == 2 and not result.stdout, (result.status, result.stderr)
        assert "--yes" in result.stderr
    assert digest(path) == before


def test_bin_works_in_a_checkout(store) -> None:
    """bin/NAME runs from anywhere, through a link of somebody's own, with nothing installed."""
    need("list")
    for name in SCRIPTS:
        assert (ROOT / "bin" / name).is_symlink() and os.access(ROOT / "bin" / name, os.X_OK)
    path = store("v22")
    link = path.parent / "hermes-session-list"
    link.symlink_to(ROOT / "bin" / "hermes-session-list")
    python = Path(sys.executable)
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    argv = [link, "--db", path, "-n", "1"]
    done = subprocess.run(argv, capture_output=True, cwd="/", env=env)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1, done.stderr


def test_head_in_a_pipe(run: Run, store) -> None:
    """`| head -1` is quiet, and pipefail sees 141 at most."""
    need("export")
    path = store("v22")
    result = run.shell(
        f"set -o pipefail; yes '{CLI}' | head -2000 >/dev/null;"
        f" hermes-session-export --db '{path}' | head -c 1; echo ${{PIPESTATUS[0]}}"
    )
    assert result.text[:1] == "{" and result.text[1:] in ("0\n", "141\n")
    assert not result.stderr


def test_records_are_what_import_takes() -> None:
    """The record the calls above bring along is one line of JSON."""
    assert json.loads(RECORD)["messages"]
