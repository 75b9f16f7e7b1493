"""Faults on purpose: bytes flipped, files cut, logs of strangers, processes killed, disks full,
two writers at once. FAULTS=N makes a short round (N times ten seeds); without it all of it runs.

The numbers of faults tried and survived are printed at the end.
"""

import faulthandler
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
import stores
from conftest import Run
from scripts import CLI, RECORD, TELEGRAM, TIP, module_file

from hermes_tools.console.status import Status

pytestmark = pytest.mark.faults

SHORT = int(os.environ.get("FAULTS") or 0)
SEEDS = SHORT * 10 if SHORT else 300
KILLS = max(1, SHORT // 2) if SHORT else 12
HANGS = 120  # seconds after which a command is taken to hang
GROUP = 20  # seeds a test

tried: Counter[str] = Counter()
survived: Counter[str] = Counter()

# What a command may answer on a damaged store: anything but "a bug".
SANE = {Status.OK, Status.NEGATIVE, Status.USAGE, Status.DATA, Status.MISSING, Status.IO,
        Status.BUSY, Status.UNSUPPORTED}  # fmt: skip
NOTICED = ("damaged", "malformed", "not a database", "disk I/O error")

READERS: dict[str, list[object]] = {
    "list": ["--segments"], "show": [TIP], "search": ["garden"], "scroll": [TIP, 20],
    "title": [CLI], "stats": ["--size"], "export": [], "resume": [], "check": [],
    "handoff": ["list"], "key": ["--index"], "migrate": ["--dry-run"],
    "delete": [CLI, "--dry-run"], "prune": ["--older-than", "1d", "--dry-run"],
    "repair": ["--index", "--dry-run"],
}  # fmt: skip
WRITERS: dict[str, list[object]] = {
    "title": [TELEGRAM, "a new name"], "append": [TIP, "--live"], "archive": [CLI],
    "end": [TIP], "delete": [CLI, "--yes", "--live"], "prune": ["--older-than", "1d", "--yes"],
    "import": ["-"], "repair": ["--index", "--counters"], "migrate": [], "optimize": [],
}  # fmt: skip
BARE = ("show", "title", "resume")  # these answer in words, not in records
INPUT = {
    "append": "".join(json.dumps({"role": "user", "content": f"word {number}"}) + "\n"
                      for number in range(300)),
    "import": "".join(
        RECORD.replace("0a0b0c", f"{number:06x}").replace("brought along", f"brought {number}")
        for number in range(200)
    ),
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def numbers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say at the end how many faults were tried and how many survived."""
    yield
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    lines = [f"{kind}: {tried[kind]} tried, {survived[kind]} survived" for kind in sorted(tried)]
    lines.append(f"faults: {sum(tried.values())} tried, {sum(survived.values())} survived")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        print("", *lines, sep="\n", flush=True)


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A command that hangs ends the run, and says where it hung."""
    faulthandler.dump_traceback_later(HANGS * 4, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def there(names: dict[str, list[object]]) -> dict[str, list[object]]:
    """Those whose script exists."""
    return {name: words for name, words in names.items() if module_file(name).exists()}


# --- Damage ----------------------------------------------------------------------------------


def pages_of(data: bytes, size: int, root: int) -> list[int]:
    """Pages of a b-tree, as far as they can be walked."""
    found, todo = [], [root]
    while todo:
        page = todo.pop()
        at = (page - 1) * size
        if page in found or not 0 < page <= len(data) // size:
            continue
        found.append(page)
        at += 100 if page == 1 else 0
        if data[at] in (2, 5):
            for cell in range(int.from_bytes(data[at + 3 : at + 5], "big")):
                offset = int.from_bytes(data[at + 12 + 2 * cell : at + 14 + 2 * cell], "big")
                here = (page - 1) * size + offset
                todo.append(int.from_bytes(data[here : here + 4], "big"))
            todo.append(int.from_bytes(data[at + 8 : at + 12], "big"))
    return found


def targets(path: Path) -> dict[str, list[int]]:
    """Pages by the kind of thing they hold."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE").fetchone()
        size = db.execute("PRAGMA page_size").fetchone()[0]
        roots = db.execute("SELECT type, name, rootpage FROM sqlite_master WHERE rootpage > 0")
        objects = roots.fetchall()
    data = path.read_bytes()
    kinds: dict[str, list[int]] = {"header": [1], "schema": pages_of(data, size, 1)}
    for kind, name, root in objects:
        which = "words" if name.startswith("messages_fts") else kind
        kinds.setdefault(which, []).extend(pages_of(data, size, root))
    return kinds


def flip(path: Path, seed: int) -> str:
    """Spoil a store in a way that the seed chooses; what was done."""
    chance = random.Random(seed)
    kinds = targets(path)
    kind = sorted(kinds)[seed % len(kinds)]
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    page = chance.choice(kinds[kind])
    start = (page - 1) * size
    extent = 100 if kind == "header" else size
    how = chance.choice(["bytes", "bits", "zero", "run"])
    if how == "zero":
        start += 16 if kind == "header" else 0
        data[start : start + extent // 2] = bytes(extent // 2)
    elif how == "run":
        at = start + chance.randrange(extent)
        data[at : at + 64] = chance.randbytes(64)
    else:
        for _ in range(chance.choice([1, 2, 8, 40])):
            at = start + chance.randrange(extent)
            bit = 1 << chance.randrange(8)
            data[at] = chance.randrange(256) if how == "bytes" else data[at] ^ bit
    path.write_bytes(data)
    return f"{kind} page {page}, {how}"


def judge(name: str, run: Run, path: Path, words: list[object], what: str) -> int:
    """Run one command on a spoilt store; its status, after what it may never do was looked for."""
    began = time.monotonic()
    result = run(name, *words, "--db", path, "--timeout", 2, input=INPUT.get(name, ""))
    said = f"{name} on {what}: status {result.status}\n{result.stderr[-600:]}"
    assert time.monotonic() - began < HANGS, f"hangs: {said}"
    assert result.status in SANE, said
    assert "Traceback" not in result.stderr, said
    if name not in BARE:
        assert result.records is not None, said
    noticed = any(word in result.stderr for word in NOTICED)
    if "without an index" in result.stderr:  # search then reads every message, which is sound
        noticed = False
    assert not (noticed and result.status == 0), f"success, though it noticed: {said}"
    return result.status


@pytest.mark.parametrize("first", range(0, SEEDS, GROUP))
def test_bytes_flipped(first: int, run: Run, store, tmp_path: Path) -> None:
    names = ["v11", "v19", "v22", "head-3", "head-0", "v5"]
    sound = {name: store(name) for name in names}
    wrong: list[str] = []
    for seed in range(first, min(first + GROUP, SEEDS)):
        name = names[seed // 7 % len(names)]
        path = tmp_path / f"seed{seed}" / "state.db"
        path.parent.mkdir()
        shutil.copy(sound[name], path)
        what = f"seed {seed}, {name}: {flip(path, seed)}"
        for kind, command in a_round(seed, path):
            before = path.read_bytes()
            tried[f"bytes flipped, {kind}"] += 1
            try:
                command(run, path, what)
                assert kind == "writers" or path.read_bytes() == before, f"wrote to {what}"
                survived[f"bytes flipped, {kind}"] += 1
            except Exception as error:  # the others are tried all the same
                wrong.append(str(error))
        shutil.rmtree(path.parent)
    assert not wrong, "\n\n".join(wrong)


Trial = Callable[[Run, Path, str], object]


def a_round(seed: int, path: Path) -> Iterator[tuple[str, Trial]]:
    """Everything that is tried on one spoilt store: all readers, what copies, and one writer."""

    def trial(name: str, words: list[object]) -> Trial:
        return lambda run, path, what: judge(name, run, path, words, what)

    for name, words in there(READERS).items():
        yield "readers", trial(name, words)
    yield "copies", back_up
    yield "copies", trial("repair", ["--salvage", "-o", path.with_name("new.db")])
    writers = there(WRITERS)
    chosen = sorted(writers)[seed % len(writers)]
    yield "writers", trial(chosen, writers[chosen])


def back_up(run: Run, path: Path, what: str) -> None:
    """Either a copy that is good, or none."""
    copy = path.with_name("copy.db")
    if judge("backup", run, path, ["-o", copy], what) != 0:
        assert not copy.exists(), f"a copy of {what} that is not good"
        return
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("PRAGMA quick_check").fetchall() == [("ok",)], f"a bad copy of {what}"


@pytest.mark.parametrize("kind", ["half", "most", "header", "zeroed", "zeroed tail", "grown"])
def test_files_cut(kind: str, run: Run, store, tmp_path: Path) -> None:
    for name in ("v11", "v22"):
        sound = store(name)
        targets(sound)  # out of WAL mode
        data = sound.read_bytes()
        path = tmp_path / name / "state.db"
        path.parent.mkdir()
        path.write_bytes({
            "half": data[: len(data) // 2], "most": data[:-4096], "header": data[:100],
            "zeroed": bytes(len(data)), "zeroed tail": data[:8192] + bytes(len(data) - 8192),
            "grown": data + b"\xff" * 5000,
        }[kind])  # fmt: skip
        before = path.read_bytes()
        for command, words in there(READERS).items():
            tried["files cut"] += 1
            judge(command, run, path, words, f"{name}, {kind}")
            assert path.read_bytes() == before, command
            survived["files cut"] += 1


def test_a_log_of_another_store(run: Run, store, tmp_path: Path) -> None:
    """SQLite believes it, if its sums are right; no command may fall over what comes of it."""
    other, path = store("v22"), store("v11")
    with closing(sqlite3.connect(other, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("UPDATE messages SET content = 'of another store'")
        log = Path(f"{other}-wal").read_bytes()
    for command, words in {**there(READERS), **there(WRITERS)}.items():
        tried["strange logs"] += 1
        place = tmp_path / command / "state.db"
        place.parent.mkdir()
        shutil.copy(path, place)
        Path(f"{place}-wal").write_bytes(log)
        judge(command, run, place, words, "a log of another store")
        survived["strange logs"] += 1


# --- Interruptions ---------------------------------------------------------------------------


@pytest.fixture
def busy_store(store) -> Path:
    """A store on which writing takes a while: 200 conversations of some messages each."""
    path = store("v22")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        for number in range(200):
            name = f"20250101_{number:06d}_f00d01"
            db.execute(
                "INSERT INTO sessions (id, source, started_at, ended_at, end_reason, title, "
                "message_count) VALUES (?, 'cli', 1.70e9, 1.70e9, 'user_exit', ?, 8)",
                (name, f"filler {number}"),
            )
            db.executemany(
                "INSERT INTO messages (session_id, role, content, timestamp) "
                "VALUES (?, 'user', ?, 1.70e9)",
                [(name, f"message {number} {one} " + "some words " * 30) for one in range(8)],
            )
        db.execute("COMMIT")
    path.chmod(0o600)
    return path


def fillers(path: Path) -> list[str]:
    """Ids of the filler conversations that are still there."""
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in
                db.execute("SELECT id FROM sessions WHERE id LIKE '20250101%' ORDER BY id")]


def whole(path: Path, before: dict[str, object]) -> None:
    """What must hold after any interruption (store-facts 4.1, 7)."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        half = db.execute(
            "SELECT session_id, count(*) FROM messages WHERE session_id LIKE '20250101%' "
            "GROUP BY 1 HAVING count(*) <> 8"
        ).fetchall()
        assert not half, f"half of a conversation: {half[:3]}"
        lone = db.execute(
            "SELECT count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions)"
        ).fetchone()
        assert lone == (0,)
    after = stores.condition(path)
    for key in ("foreign keys", "versions", "journal_mode", "objects", "indexes"):
        assert after[key] == before[key], key


def interrupted(name: str, path: Path, tmp_path: Path) -> tuple[list[object], str]:
    """(arguments, input) of a writing command that has much to do on the busy store."""
    many = fillers(path)
    match name:
        case "delete":
            return ["-", "--yes"], "".join(f"{one}\n" for one in many)
        case "archive":
            return ["-"], "".join(f"{one}\n" for one in many)
        case "end":
            return ["-", "--reopen"], "".join(f"{one}\n" for one in many)
        case "title":
            records = [{"session_id": one, "title": f"named {one}"} for one in many]
            return ["--set", "-"], "".join(json.dumps(one) + "\n" for one in records)
        case "restore":
            copy = tmp_path / "backup.db"
            if not copy.exists():
                shutil.copy(path, copy)
            return [copy, "--yes"], ""
        case "repair":
            return ["--index", "--counters", "--no-backup"], ""
        case _:
            return WRITERS[name], INPUT.get(name, "")


KILLED = ["append", "archive", "delete", "end", "import", "migrate", "optimize", "prune", "repair",
          "restore", "title"]  # fmt: skip


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", KILLED)
def test_killed_at_any_moment(name: str, how: signal.Signals, run: Run, busy_store: Path, store,
                              tmp_path: Path) -> None:  # fmt: skip
    if not module_file(name).exists():
        pytest.skip("not written yet")
    original = busy_store if name != "migrate" else store("v5")
    if name == "repair":  # something to do
        with closing(sqlite3.connect(original, isolation_level=None)) as db:
            db.execute("UPDATE messages_fts SET content = 'stale' WHERE rowid % 3 = 0")
            db.execute("UPDATE sessions SET message_count = 99 WHERE id LIKE '20250101%'")
    sound = stores.condition(original)
    words, given = interrupted(name, original, tmp_path)
    took = 0.0
    chance = random.Random(f"{name}{how}")
    rounds = KILLS if how == signal.SIGKILL else max(1, KILLS // 4)
    for number in range(-1, rounds):
        path = tmp_path / f"{name}{number}" / "state.db"
        shutil.copytree(original.parent, path.parent)
        began = time.monotonic()
        child = run.start(name, *words, "--db", path, stdin=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
        assert child.stdin and child.stderr
        child.stdin.write(given.encode())
        child.stdin.close()
        if number >= 0:
            tried[how.name] += 1
            time.sleep(took * chance.uniform(0.2, 1.0))
            child.send_signal(how)
        status = child.wait(HANGS)
        said = child.stderr.read().decode()
        took = took or time.monotonic() - began
        assert "Traceback" not in said or (how == signal.SIGINT and "import" in said), said
        if how != signal.SIGKILL or number < 0:
            assert status in (0, 1, 128 + how, -how), (status, said)
        if name in ("repair", "migrate"):
            check_again(name, run, path, words)
        else:
            whole(path, sound)
        again = run.process(name, *words, "--db", path, input=given, timeout=HANGS)
        assert again.status in (0, 1), again.stderr
        if name not in ("repair", "migrate"):
            whole(path, sound)
        if number >= 0:
            survived[how.name] += 1
        shutil.rmtree(path.parent)


def check_again(name: str, run: Run, path: Path, words: list[object]) -> None:
    """Either all was done or nothing."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if name == "migrate":
        with closing(sqlite3.connect(path)) as db:
            version = db.execute("SELECT version FROM schema_version").fetchall()
            columns = {row[1] for row in db.execute("PRAGMA table_info(sessions)")}
        assert (version == [(11,)]) == ("handoff_state" in columns)
        assert version in ([(5,)], [(11,)])
    else:
        with closing(sqlite3.connect(path)) as db:
            stale = db.execute(
                "SELECT count(*) FROM messages_fts_content WHERE c0 = 'stale'"
            ).fetchone()[0]
            wrong = db.execute(
                "SELECT count(*) FROM sessions WHERE message_count = 99"
            ).fetchone()[0]
        assert bool(stale) == bool(wrong), "one part was mended without the other"


# --- A disk that is full ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["append", "delete", "import", "migrate", "optimize", "prune",
                                  "repair", "restore", "title"])  # fmt: skip
def test_a_limit_on_file_size(name: str, run: Run, busy_store: Path, store, tmp_path: Path) -> None:
    if not module_file(name).exists():
        pytest.skip("not written yet")
    path = busy_store if name != "migrate" else store("v5")
    if name == "repair":
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("UPDATE messages_fts SET content = 'stale' WHERE rowid % 3 = 0")
    sound = stores.condition(path)
    words, given = interrupted(name, path, tmp_path)
    for blocks in (1, 40, 80, 300):  # of 1024 bytes
        tried["files that may not grow"] += 1
        place = tmp_path / f"limit{blocks}" / "state.db"
        shutil.copytree(path.parent, place.parent)
        done = subprocess.run(
            ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "-",
             *run.located((name, *words, "--db", place))],
            input=given.encode(), capture_output=True, timeout=HANGS,
        )  # fmt: skip
        said = done.stderr.decode()
        assert done.returncode in (0, 1, 74), said
        assert "Traceback" not in said
        if name == "repair":
            with closing(sqlite3.connect(place)) as db:
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        elif name == "migrate":
            check_again(name, run, place, words)
        else:
            whole(place, sound)
        survived["files that may not grow"] += 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB, where the machine allows one to be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place],
                          capture_output=True)  # fmt: skip
    if done.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=False)


def test_a_full_disk(run: Run, busy_store: Path, small_disk: Path, tmp_path: Path) -> None:
    place = small_disk / "home"
    shutil.copytree(busy_store.parent, place)
    path = place / "state.db"
    sound = stores.condition(path)
    for name in ("backup", "import", "append", "optimize", "delete", "title", "archive"):
        if not module_file(name).exists():
            continue
        filler = small_disk / "filler"
        free = shutil.disk_usage(small_disk).free
        filler.write_bytes(b"x" * max(0, free - 70_000))
        words, given = (
            (["-o", place / "copy.db"], "") if name == "backup"
            else interrupted(name, path, tmp_path)
        )  # fmt: skip
        if name == "delete":
            words = [*words, "--dry-run"]
        tried["full disks"] += 1
        result = run.process(name, *words, "--db", path, input=given, timeout=HANGS)
        assert result.status in (0, 1, 74), (name, result.stderr)
        assert "Traceback" not in result.stderr
        assert not (place / "copy.db").exists()
        filler.unlink()
        whole(path, sound)
        survived["full disks"] += 1


# --- Company ---------------------------------------------------------------------------------

COMPANY = ["append", "archive", "backup", "check", "delete", "end", "import", "prune", "title"]
PAIRS = list(combinations_with_replacement(COMPANY, 2))[:: 4 if SHORT else 1]


def at_work(name: str, run: Run, path: Path, tmp_path: Path, second: bool) -> tuple[
    "subprocess.Popen[bytes]", str
]:  # fmt: skip
    """A command under way on the busy store."""
    words: list[object]
    if name == "backup":
        words, given = ["-o", tmp_path / f"copy{second}.db"], ""
    elif name == "check":
        words, given = [], ""
    else:
        words, given = interrupted(name, path, tmp_path)
    return run.start(name, *words, "--db", path, "--timeout", 30, stdin=subprocess.PIPE,
                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE), given  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_two_at_once(pair: tuple[str, str], run: Run, busy_store: Path, tmp_path: Path) -> None:
    if not all(module_file(name).exists() for name in pair):
        pytest.skip("not written yet")
    tried["pairs of commands"] += 1
    sound = stores.condition(busy_store)
    children = [
        at_work(name, run, busy_store, tmp_path, bool(index)) for index, name in enumerate(pair)
    ]
    for child, given in children:
        assert child.stdin
        child.stdin.write(given.encode())
        child.stdin.close()
    for name, (child, _) in zip(pair, children, strict=True):
        assert child.stderr
        said = child.stderr.read().decode()
        assert child.wait(HANGS) in (0, 1), (name, child.returncode, said)
        assert "Traceback" not in said, said
    whole(busy_store, sound)
    survived["pairs of commands"] += 1


@pytest.mark.parametrize("name", [*COMPANY, "optimize", "repair", "restore", "migrate"])
def test_beside_a_reader_that_never_ends(
    name: str, run: Run, busy_store: Path, tmp_path: Path
) -> None:
    if not module_file(name).exists():
        pytest.skip("not written yet")
    sound = stores.condition(busy_store)
    tried["readers that never end"] += 1
    reader = subprocess.Popen(
        ["python3", "-c", "import sqlite3, sys\n"
         "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
         "db.execute('BEGIN')\n"
         "count = 'SELECT count(*) FROM messages'\n"
         "print(*db.execute(count).fetchone(), flush=True)\n"
         "sys.stdin.read()\n"
         "print(*db.execute(count).fetchone(), flush=True)\n", str(busy_store)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert reader.stdout
    first = reader.stdout.readline()
    child, given = at_work(name, run, busy_store, tmp_path, False)
    _, said = child.communicate(given.encode(), timeout=HANGS)
    alone = name in ("repair", "restore")
    assert child.returncode in ((75,) if alone else (0, 1, 75)), said
    last, _ = reader.communicate()
    assert first == last, "the reader's view is one"
    whole(busy_store, sound)
    survived["readers that never end"] += 1
