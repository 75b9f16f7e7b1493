"""hermes-session-resume: the one id a conversation goes on with."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import stores


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as con:
        for statement in statements:
            con.execute(statement)
        con.commit()


@pytest.mark.parametrize("ref", [stores.ROOT, stores.MIDDLE, "roof repair #2", stores.ROOT[:-1]])
def test_compression_is_followed_to_the_tip(run, store, ref: str) -> None:
    result = run("resume", ref, "--db", store("head-3")).ok()
    assert result.text == stores.TIP + "\n"
    assert stores.TIP in result.stderr


def test_the_tip_itself_and_a_branch_stay_where_they_are(run, store) -> None:
    path = store("head-3")
    for ref, session in ((stores.TIP, stores.TIP), ("roof repair", stores.TIP),
                         (stores.BRANCH, stores.BRANCH), (stores.DELEGATE, stores.DELEGATE)):
        result = run("resume", ref, "--db", path).ok()
        assert result.text == session + "\n" and not result.stderr


@pytest.mark.parametrize("ref", [[], ["latest"]])
def test_the_newest_of_source_cli(run, store, ref: list[str]) -> None:
    path = store("head-3")
    assert run("resume", *ref, "--db", path).ok().text == stores.PINNED + "\n"
    change(path, f"UPDATE sessions SET archived = 1 WHERE id = '{stores.PINNED}'")
    assert run("resume", *ref, "--db", path).ok().text == stores.UNDONE + "\n"
    assert run("resume", "--source", "discord", "--db", path).ok().text == stores.EMOJI + "\n"


def test_no_session_of_source_cli(run, store) -> None:
    path = store("head-3")
    change(path, "UPDATE sessions SET source = 'telegram'")
    result = run("resume", "--db", path).gave(1)
    assert not result.stdout and "cli" in result.stderr


def test_b72_an_empty_root_leads_to_its_tip_and_an_empty_tip_back(run, store) -> None:
    path = store("head-3")
    change(path, f"DELETE FROM messages WHERE session_id IN ('{stores.ROOT}')")
    assert run("resume", stores.ROOT, "--db", path).ok().text == stores.TIP + "\n"
    change(path, f"DELETE FROM messages WHERE session_id IN ('{stores.TIP}')")
    assert run("resume", stores.ROOT, "--db", path).ok().text == stores.MIDDLE + "\n"


def test_b74_no_messages_anywhere(run, home) -> None:
    place = home("head-3")
    result = run("resume", stores.GHOST, "--home", place).gave(1)
    assert not result.stdout and "no messages" in result.stderr
    (place / "sessions").mkdir(exist_ok=True)
    kept = place / "sessions" / f"{stores.GHOST}.jsonl"
    kept.write_text("{}\n")
    assert str(kept) in run("resume", stores.GHOST, "--home", place).gave(1).stderr


def test_unknown_and_ambiguous(run, store) -> None:
    path = store("head-3")
    for ref in ("nothing of this name", "2026030"):
        result = run("resume", ref, "--db", path).gave(1)
        assert not result.stdout and result.stderr
    run("resume", "", "--db", path).gave(2)
    run("resume", stores.TIP, "--source", "cli", "--db", path).gave(2)


def test_recap_leaves_the_id_alone_on_standard_output(run, store) -> None:
    result = run("resume", "roof repair", "--recap", "--db", store("head-3")).ok()
    assert result.text == stores.TIP + "\n"
    assert "Previous Conversation" in result.stderr and "Eighty" in result.stderr


def test_a_record_where_one_is_asked_for(run, store) -> None:
    path = store("head-3")
    (one,) = run("resume", "roof repair", "-f", "jsonl", "--db", path).ok().records
    assert one["session_id"] == stores.TIP and one["lineage_root_id"] == stores.ROOT
    assert not run("resume", "roof repair", "-q", "--db", path).ok().stdout


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return folder


def test_exec_becomes_the_agent(run, home, tmp_path: Path) -> None:
    place = home("head-3")
    folder = program(tmp_path / "bin", "hermes", 'echo "$HERMES_HOME" "$@"; exit 7')
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    result = run.process("resume", "roof repair", "--exec", "--home", place, env=env)
    assert (result.status, result.text) == (7, f"{place} --resume {stores.TIP}\n")
    other = tmp_path / "copy.db"
    other.write_bytes((place / "state.db").read_bytes())
    run.process("resume", "--exec", "--db", other, env=env).gave(2)
    result = run.process("resume", "--exec", "--home", place, env={"PATH": "/usr/bin:/bin"})
    assert result.gave(66).stderr.count("hermes: not found") == 1


def test_pick_needs_a_person(run, store) -> None:
    run("resume", "--pick", "--db", store("head-3")).gave(2)
    run("resume", "--pick", "x", "--db", store("head-3")).gave(2)


def test_pick_from_a_numbered_list(run, store, tmp_path: Path) -> None:
    path = store("head-3")
    (tmp_path / "none").mkdir()
    env = {"PATH": str(tmp_path / "none")}
    result = run.terminal("resume", "--pick", "--db", path, keys=b"99\n2\n", env=env).ok()
    lines = result.text.splitlines()
    assert any(line.lstrip().startswith("1 ") for line in lines)
    assert result.text.count("resume which?") == 2
    assert lines[-1].endswith(stores.HIDDEN) or lines[-1].split()[-1][:4] in ("2026", "cron")
    run.terminal("resume", "--pick", "--db", path, keys=b"\n", env=env).gave(1)


def test_pick_with_fzf(run, store, tmp_path: Path) -> None:
    """A stand-in for fzf takes the second line, and shows that the preview command works."""
    folder = program(
        tmp_path / "bin", "fzf",
        'for word; do case $last in --preview) show=$word;; esac; last=$word; done\n'
        'line=$(sed -n 2p); id=$(printf %s "$line" | cut -f1)\n'
        'sh -c "$(printf %s "$show" | sed "s/{1}/$id/")" >&2 || exit 9\n'
        'printf "%s\\n" "$line"',
    )  # fmt: skip
    path = store("head-3")
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    result = run.terminal("resume", "--pick", "--db", path, env=env).ok()
    assert "Previous Conversation" in result.text
    second = run("list", "-n", 2, "-f", "ids", "--db", path).lines[1]
    assert result.text.splitlines()[-1] == second
    program(tmp_path / "bin", "fzf", "exit 130")
    run.terminal("resume", "--pick", "--db", path, env=env).gave(1)
