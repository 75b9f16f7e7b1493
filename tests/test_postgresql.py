"""The manual's COPY line, run against a real PostgreSQL server on a socket of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Run

pytestmark = pytest.mark.slow


def program(name: str) -> str | None:
    """A program of the newest PostgreSQL here; distributions keep the server's off PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return shutil.which(name) or (str(places[0]) if places else None)


@pytest.fixture(scope="module")
def psql() -> Iterator[Callable[..., "subprocess.CompletedProcess[str]"]]:
    """psql("-c", sql, stdin=…) on a server that lives as long as these tests."""
    initdb, pg_ctl, client = map(program, ("initdb", "pg_ctl", "psql"))
    if not (initdb and pg_ctl and client):
        pytest.skip("the PostgreSQL server is not installed")
    # A socket's path has room for 107 bytes, and the server refuses to run as root.
    place = Path(tempfile.mkdtemp(prefix="pg-"))
    user: dict[str, int] = {}
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(place, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid}
    data, log = place / "data", place / "log"
    settings = f"-k {place} -c listen_addresses='' -c fsync=off"

    def act(*argv: str) -> None:
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                       cwd=place, **user)  # fmt: skip

    try:
        act(initdb, "-D", str(data), "-U", "archive", "-A", "trust", "-E", "UTF8")
        act(pg_ctl, "-D", str(data), "-l", str(log), "-o", settings, "-w", "start")
        env = {**os.environ, "PGHOST": str(place), "PGUSER": "archive", "PGDATABASE": "postgres"}

        def run(*argv: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[str]":
            done = subprocess.run(
                [client, "-AtX", "-v", "ON_ERROR_STOP=1", *argv],
                env=env, input=stdin, capture_output=True, timeout=60,
            )  # fmt: skip
            return subprocess.CompletedProcess(
                argv, done.returncode, done.stdout.decode(), done.stderr.decode()
            )

        yield run
    finally:
        subprocess.run(
            [pg_ctl, "-D", str(data), "-m", "immediate", "stop"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=place, **user,
        )  # fmt: skip
        shutil.rmtree(place, ignore_errors=True)


def test_copy_takes_flat_messages_as_they_come(
    run: Run, store: Callable[[str], Path], psql: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    flat = run("export", "--db", store("v22"), "-f", "messages").ok()
    made = psql("-c", "CREATE TABLE messages (line jsonb)")
    assert made.returncode == 0, made.stderr
    copied = psql(
        "-c", r"COPY messages FROM STDIN (FORMAT csv, QUOTE e'\x01', DELIMITER e'\x02')",
        stdin=flat.stdout,
    )  # fmt: skip
    assert copied.returncode == 0, copied.stderr
    counted = psql("-c", "SELECT line->>'role', count(*) FROM messages GROUP BY 1 ORDER BY 1")
    roles: dict[str, int] = {}
    for record in flat.records:
        roles[record["role"]] = roles.get(record["role"], 0) + 1
    assert counted.stdout.split() == [f"{role}|{n}" for role, n in sorted(roles.items())]
    texts = psql("-c", "SELECT line->>'content' FROM messages WHERE line->>'content' LIKE '%磁盘%'")
    assert "磁盘" in texts.stdout
