"""The lossless export as functions: lines, digests, and reading them back."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import stores
from hypothesis import given
from hypothesis import strategies as st

from hermes_tools.console import archive
from hermes_tools.store import exporting, parsing
from hermes_tools.store.db import reader, writer
from hermes_tools.store.errors import Failed, Negative, NotFound
from hermes_tools.store.exporting import Exporter, digest
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.verifying import verify

SHIPPED = ("v11", "v13", "v14", "v16", "v19", "v22")
TIP = "20260226_150000_00cc33"
Store = Callable[[str], Path]


def ids_of(db) -> list[str]:
    return [row[0] for row in db.execute("SELECT id FROM sessions ORDER BY id")]


@pytest.mark.parametrize("name", [*SHIPPED, "v1", "v5", "head-3", "v99", "nofts"])
@pytest.mark.parametrize("long", [1 << 20, 200])
def test_every_row_is_read_back(
    store: Store, name: str, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "LONG", long)  # 200: every line takes the way of long ones
    with reader(store(name)) as db:
        exporter, file = Exporter(db), io.BytesIO()
        for session_id in ids_of(db):
            file.writelines(exporter.line(session_id))
        file.seek(0)
        assert verify(db, file) == ids_of(db)


def test_the_keys_of_a_record_stand_in_their_order(store: Store) -> None:
    with reader(store("v22")) as db:
        line = b"".join(Exporter(db).line(TIP))
    record = json.loads(line)
    assert list(record)[:8] == ["id", "source", "user_id", "model", "model_config",
                                "system_prompt", "parent_session_id", "started_at"]  # fmt: skip
    later = list(record)[30:]
    assert later[:2] == ["archived", "billing_base_url"] or later[0] == "archived"
    columns = [key for key in later if not key.startswith("_") and key != "messages"]
    assert columns == sorted(columns)
    assert list(record)[-1] == "_format"
    assert line.count(b"\n") == 1 and line.endswith(b"\n")


def test_a_conversation_is_its_chain_then_its_delegates(store: Store, run) -> None:
    path = store("v22")
    lines = run("export", "--db", path, TIP).stdout.splitlines()
    with reader(path) as db:
        assert [json.loads(line)["id"] for line in lines] == Lineage(db).members(TIP)
    assert len(lines) >= 3


def test_an_unknown_session_is_named(store: Store) -> None:
    with reader(store("v11")) as db, pytest.raises(NotFound, match="session nobody"):
        b"".join(Exporter(db).line("nobody"))


def test_the_same_conversation_has_the_same_digest_in_stores_of_two_releases(
    store: Store,
) -> None:
    found = set()
    for name in ("v11", "v13"):
        with reader(store(name)) as db:
            found.add(digest(db, Lineage(db).members(TIP)))
    assert len(found) == 1


@pytest.mark.parametrize("change", [
    "UPDATE messages SET content = content || '.' WHERE id = (SELECT max(id) FROM messages "
    f"WHERE session_id = '{TIP}')",
    f"UPDATE sessions SET title = 'other' WHERE id = '{TIP}'",
    f"DELETE FROM messages WHERE session_id = '{TIP}'",
    f"UPDATE messages SET active = 0 WHERE session_id = '{TIP}'",
])  # fmt: skip
def test_a_digest_changes_with_what_is_said(store: Store, change: str) -> None:
    with writer(store("v22")) as db:
        rows = Lineage(db).members(TIP)
        before = digest(db, rows)
        assert digest(db, rows) == before
        db.execute(change)
        assert digest(db, rows) != before


def test_ids_and_live_state_do_not_count_for_a_digest(store: Store) -> None:
    with writer(store("v22")) as db:
        rows = Lineage(db).members(TIP)
        before = digest(db, rows)
        db.execute("UPDATE messages SET id = id + 5000 WHERE session_id = ?", (TIP,))
        db.execute("UPDATE sessions SET session_key = 'agent:main:cli' WHERE id = ?", (TIP,))
        assert digest(db, rows) == before


def test_saved_files_are_private_whole_and_never_replaced(store: Store, tmp_path: Path) -> None:
    place = tmp_path / "gone.jsonl"
    with reader(store("v19")) as db:
        rows = Lineage(db).members(TIP)
        digests = archive.save(db, [rows], place)
        assert digests == [digest(db, rows)]
        first = place.read_bytes()
        assert place.stat().st_mode & 0o777 == 0o600
        with pytest.raises(Negative, match="not replaced"):
            archive.save(db, [rows], place)
        assert place.read_bytes() == first
        other = [one for one in ids_of(db) if one not in rows][:1]
        archive.save(db, [other], place, append=True)
        assert place.read_bytes().startswith(first)
        assert len(place.read_bytes().splitlines()) == len(rows) + 1


def test_a_file_that_does_not_hold_what_was_written_is_taken_back(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "gone.jsonl"
    place.write_bytes(b"mine\n")
    line = Exporter.line
    monkeypatch.setattr(
        Exporter, "line",
        lambda self, one: (chunk.replace(b'"role":"user"', b'"role":"usex"')
                           for chunk in line(self, one)),
    )  # fmt: skip
    with reader(store("v19")) as db, pytest.raises(Failed, match="role"):
        archive.save(db, [Lineage(db).members(TIP)], place, append=True)
    assert place.read_bytes() == b"mine\n"


def test_a_folder_gets_a_dated_file_that_is_new(tmp_path: Path) -> None:
    first = archive.target(tmp_path, now=0.0)
    first.write_bytes(b"")
    second = archive.target(tmp_path, now=0.0)
    assert first.parent == tmp_path and second != first and second.suffix == ".jsonl"


def digests(path: Path, session_id: str) -> str:
    with reader(path) as db:
        return digest(db, Lineage(db).members(session_id))


def test_a_digest_is_of_what_was_said_not_of_what_a_store_fills_in(store: Store) -> None:
    path = store("head-3")
    before = digests(path, stores.TOOLS)
    for change in (
        "message_uid = 'f0'", "display_order = id + 70, display_identity = x'01ff'",
        "absorbed_message_uids = '[\"f1\"]'", "tool_call_uids = '{\"c1\": \"f2\"}'",
        "tool_call_uid = 'f2'",
    ):  # fmt: skip
        with writer(path) as db:
            db.execute(f"UPDATE messages SET {change} WHERE session_id = ?", (stores.TOOLS,))
        assert digests(path, stores.TOOLS) == before, change
    for change in ("content = content || '!'", "active = 0", "reasoning = 'why'"):
        with writer(path) as db:
            db.execute(f"UPDATE messages SET {change} WHERE session_id = ?", (stores.TOOLS,))
        assert digests(path, stores.TOOLS) != before, change


def test_a_prompt_counts_the_same_inline_and_by_its_hash(store: Store) -> None:
    path = store("head-3")
    with writer(path) as db:
        (session_id, name, prompt), = db.execute(
            "SELECT id, hash, prompt FROM sessions JOIN system_prompts ON hash = "
            "system_prompt_hash LIMIT 1"
        ).fetchall()  # fmt: skip
        before = digests(path, session_id)
        db.execute(
            "UPDATE sessions SET system_prompt = ?, system_prompt_hash = NULL WHERE id = ?",
            (prompt, session_id),
        )
        assert digests(path, session_id) == before
        db.execute("UPDATE sessions SET system_prompt = 'other' WHERE id = ?", (session_id,))
    assert name and digests(path, session_id) != before


@pytest.mark.parametrize("target", ["v11", "v22", "head-0", "head-3", "nofts"])
def test_an_imported_conversation_keeps_its_digest(store: Store, run, target: str) -> None:
    source, path = store("v19"), store(target)
    if target in SHIPPED:
        run("delete", "--yes", "--live", TIP, "--db", path).ok()
    meant = digests(source, TIP)
    exported = run("export", TIP, "--db", source).ok().stdout
    told = run("import", "--db", path, input=exported).ok().records
    assert meant == digests(path, TIP)
    assert meant in {one.get("digest") for one in told}
    again = run("import", "--db", path, input=exported).ok().records
    assert {one["action"] for one in again} == {"unchanged"}
    back = run("export", TIP, "--db", path).ok().stdout
    told = run("import", "--db", source, input=back).ok().records
    assert {one["action"] for one in told} == {"unchanged"}, "uids alone are no difference"


def test_a_message_with_another_id_is_displayed_where_it_now_stands(store: Store, run) -> None:
    path = store("head-3")
    exported = run("export", stores.TOOLS, "--db", path).ok().stdout
    run("import", "--on-conflict", "new-id", "--db", path, input=exported).ok()
    with reader(path) as db:
        found = db.execute(
            "SELECT id, display_order FROM messages WHERE session_id = ?", (f"{stores.TOOLS}_2",)
        ).fetchall()
    assert found and all(row[0] == row[1] for row in found)


TEXTS = st.text() | st.sampled_from(
    ['"', "\\", "\n", "\x7f", "é", "🚀", '{"path": "a, b: c"}', "]}"]
)
CALLS = st.lists(
    st.fixed_dictionaries(
        {"id": TEXTS},
        optional={"call_id": TEXTS | st.none(), "response_item_id": TEXTS, "extra": TEXTS},
    ).flatmap(
        lambda ids: TEXTS.map(
            lambda said: {
                **ids, "type": "function", "function": {"name": "terminal", "arguments": said},
            }
        )
    ),
    max_size=3,
)  # fmt: skip


@given(CALLS, st.data())
def test_calls_that_stay_as_they_stand_are_what_json_dumps_gives(
    calls: list[dict[str, Any]], data: st.DataObject
) -> None:
    cell = json.dumps(calls)
    if data.draw(st.booleans()):  # something else somewhere
        at = data.draw(st.integers(0, len(cell)))
        odd = data.draw(st.sampled_from([" ", ",", '"', "\\", "\\u0041", "\\/", '"id": "", ', "]"]))
        cell = cell[:at] + odd + cell[at + data.draw(st.integers(0, 3)) :]
    written = exporting.spliced(cell)
    if isinstance(written, orjson.Fragment):
        assert json.dumps(orjson.loads(cell)) == cell


def test_calls_of_every_release_stay_as_they_stand() -> None:
    """Else nobody would notice that an export takes longer."""
    one = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"a": "b\\n"}'}}
    two = {"id": "c1", "call_id": "c2", "response_item_id": "fc_2", **one}
    for calls in ([one], [one, one], [two, one]):
        assert isinstance(exporting.spliced(json.dumps(calls)), orjson.Fragment)


def test_a_page_keeps_nothing_of_the_one_before() -> None:
    names = ["id", "session_id", "content", "tool_calls", "timestamp", "reasoning"]
    cells = exporting.Cells("messages", names)
    call = json.dumps([{"id": "c", "type": "f", "function": {"name": "n", "arguments": "{}"}}])
    pages = [
        [(1, "s", "one", call, 1.5, "thought"), (2, "s", "two", None, 2.5, None)],
        [(3, "s", None, None, 3.5, None)],
        [(4, "s", "x", None, float("inf"), None)],  # no page of the quick way
        [(5, "s", b"\xff", None, 5.5, "more")],  # nor this one, found out in its midst
        [(6, "s", None, None, 6.5, None), (7, "s", None, None, 7.5, None)],
    ]
    for page in pages:
        told = orjson.loads(b"[" + cells.dumps(page) + b"]")
        for record in told:
            record.pop("_raw", None)
        wanted = [dict(zip(names, row, strict=True)) for row in page]
        for row in wanted:
            row["tool_calls"] = row["tool_calls"] and json.loads(row["tool_calls"])
            row["content"] = None if isinstance(row["content"], bytes) else row["content"]
            row["timestamp"] = None if row["timestamp"] == float("inf") else row["timestamp"]
        assert told == wanted
