"""The same answers on every kind of index, and on none."""

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import stores

from hermes_tools.store import db, query, routes, search
from hermes_tools.store.errors import Usage
from hermes_tools.store.routes import Routes
from hermes_tools.store.selection import Selection

LAYOUTS = (
    "head-0", "head-1", "head-2", "head-3", "nofts", "head-pending", "head-stale", "head-cjk",
)  # fmt: skip

COMMAND = "cd C:\\tmp\nhelm upgrade—now 检查helmfile状态 crêpes"
CALL = [
    {"id": "call_9", "type": "function",
     "function": {"name": "terminal", "arguments": json.dumps({"command": COMMAND})}},
]  # fmt: skip
PARTS = [{"type": "text", "text": "Line one\nsecondline 磁盘满了, nginx在Über"},
         {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8gd29ybGQ="}}]
# name → (role, content, tool_name, tool_calls)
TEXTS: dict[str, tuple[Any, ...]] = {
    "deploy": ("user", "a blue-green deploy"),
    "green": ("user", "green-blue, blue green"),
    "path": ("assistant", "see src/api/main.go:12 and C:\\tmp"),
    "brien": ("user", "O'Brien’s; DROP TABLE notes; --"),
    "issue": ("user", "fixes #482."),
    "p99": ("assistant", "the p99.9 latency at 10:30"),
    "npmrc": ("user", ".npmrc lives here, unpack with tar -xzf"),
    "mail": ("user", "ops@example.org and v3.4.1-rc2"),
    "decoy": ("user", "rc2 of v3.4.1 at example.org, ops"),
    "job": ("assistant", "worker job_id7 died"),
    "pool": ("user", "connection\npool exhausted"),
    "loop": ("user", "pool of connection objects"),
    "week": ("user", "周五 上线"),
    "glued week": ("user", "他们周五上线了"),
    "last week": ("user", "周五"),
    "backup": ("assistant", "今天的备份任务失败了需要重跑"),
    "progress": ("user", "进度_1"),
    "progress x": ("user", "进度x1"),
    "nginx": ("user", "请检查nginx服务"),
    "nginx end": ("user", "重启nginx"),
    "nginx start": ("user", "nginx服务"),
    "nginx middle": ("user", "v2버전nginx배포"),
    "nginxs": ("user", "nginxs xnginx"),
    "v2": ("assistant", "버전v2배포완료"),
    "v21": ("assistant", "버전v21배포완료"),
    "v2 end": ("user", "배포v2"),
    "lamp": ("user", "купили новую лампочку"),
    "loud lamp": ("user", "КУПИЛИ ЛАМПОЧКУ"),
    "hedgehog": ("user", "Ёж и ежи"),
    "cafe": ("user", "Naïve Café"),
    "apart": ("user", "Cafe\u0301 au lait"),
    "cafes": ("user", "cafeteria"),
    "viet": ("user", "Việt Nam, Nguyễn"),
    "sharp": ("user", "Dateigröße"),
    "rocket": ("user", "release 🚀"),
    "go rocket": ("user", "go🚀go"),
    "robot": ("user", "🤖robotword"),
    "arrow": ("assistant", "a→b"),
    "hangul apart": ("user", "\u1112\u1161\u11ab\u1100\u116e\u11a8어"),
    "hindi": ("user", "यह हिन्दी है"),
    "arabic": ("user", "الكتاب"),
    "call": ("assistant", None, None, json.dumps(CALL)),
    "raw call": ("assistant", None, None, json.dumps(CALL, ensure_ascii=False)),
    "odd call": ("assistant", None, None, "not json 备份calls"),
    "tool": ("tool", "pod list 磁盘 " + "x" * 9000 + " deepword 深度 glued服务deep2", "kubectl"),
    "picture": ("user", "\x00json:" + json.dumps(PARTS)),
    "raw picture": ("user", "\x00json:" + json.dumps(PARTS, ensure_ascii=False)),
    "broken": ("user", "\x00json:{brokenword"),
    "empty": ("assistant", ""),
}  # fmt: skip
QUERIES: dict[str, set[str]] = {
    "blue-green": {"deploy"}, '"blue green"': {"green"}, "blue": {"deploy", "green"},
    "src/api/main.go": {"path"}, r"C:\tmp": {"path", "call", "raw call"},
    "O'Brien": {"brien"}, "O'Brien's": {"brien"}, "#482": {"issue"}, "p99.9": {"p99"},
    "10:30": {"p99"}, ".npmrc": {"npmrc"}, "tar -xzf": {"npmrc"}, "-xzf": {"npmrc"},
    "ops@example.org": {"mail"}, "v3.4.1-rc2": {"mail"}, "example.org": {"mail", "decoy"},
    "job_id": {"job"}, "job_id7": {"job"}, "job_id8": set(),
    '"connection pool"': {"pool"}, "connection pool": {"pool", "loop"},
    "周五": {"week", "glued week", "last week"}, "五": {"week", "glued week", "last week"},
    "周五*": {"week", "glued week", "last week"}, "周五 NOT 他们": {"week", "last week"},
    "备份任务": {"backup"}, "备份": {"backup", "odd call"}, "进度_1": {"progress"},
    "nginx": {"nginx", "nginx end", "nginx start", "nginx middle", "picture", "raw picture"},
    "ngin*": {"nginx", "nginx end", "nginx start", "nginx middle", "picture", "raw picture",
              "nginxs"},
    "nginx OR lampe": {"nginx", "nginx end", "nginx start", "nginx middle", "picture",
                       "raw picture"},
    "nginx服务": {"nginx", "nginx start"}, "服务": {"nginx", "nginx start"},
    "v2": {"v2", "v2 end", "nginx middle"}, "v": set(), "лампочк": {"lamp", "loud lamp"},
    "ЛАМПОЧКУ": {"lamp", "loud lamp"}, "ёж": {"hedgehog"}, "ЕЖИ": {"hedgehog"},
    "cafe": {"cafe", "apart"}, "café": {"cafe", "apart", "cafes"}, "naive": {"cafe"},
    "viet": {"viet"}, "nguyen": {"viet"}, "Việt": {"viet"}, "größe": {"sharp"},
    "🚀": {"rocket", "go rocket"}, "go": {"go rocket", "path"}, "robotword": {"robot"},
    "→": {"arrow"},
    "한국": {"hangul apart"}, "국": {"hangul apart"}, "हिन्दी": {"hindi"}, "كتاب": {"arabic"},
    "helm": {"call", "raw call"}, "upgrade": {"call", "raw call"}, "now": {"call", "raw call"},
    "helmfile": {"call", "raw call"}, "状态": {"call", "raw call"}, "检查": {"nginx", "call",
    "raw call"}, '"C:\\tmp helm"': {"call", "raw call"}, "nhelm": set(), "terminal": {"call",
    "raw call"}, "calls": {"odd call"}, "crepes": {"call", "raw call"},
    "crêpe": {"call", "raw call"},
    "secondline": {"picture", "raw picture"}, "nsecondline": set(),
    "磁盘": {"picture", "raw picture"}, "磁盘满了": {"picture", "raw picture"},
    "Über": {"picture", "raw picture"}, "uber": {"picture", "raw picture"},
    '"one secondline"': {"picture", "raw picture"}, "aGVsbG8gd29ybGQ": set(),
    "brokenword": {"broken"}, "deepword": set(), "text": set(),
}  # fmt: skip
TOOLS: dict[str, set[str]] = {
    "deepword": {"tool"}, "深度": {"tool"}, "磁盘": {"tool"}, "kubectl": {"tool"},
    "deep2": {"tool"}, "glued": {"tool"}, "xxx": set(), "pod 深度": {"tool"},
}  # fmt: skip


def fill(path: Path) -> dict[str, int]:
    """A session for each text beside the others; name → message id."""
    ids = {}
    with closing(sqlite3.connect(path)) as con:
        for number, (name, row) in enumerate(TEXTS.items()):
            role, content, tool, calls = (*row, None, None)[:4]
            source = "cron" if number % 5 == 4 else "cli"
            con.execute("INSERT INTO sessions (id, source, started_at) VALUES (?, ?, ?)",
                        (f"text {name}", source, stores.T + number))  # fmt: skip
            ids[name] = con.execute(
                "INSERT INTO messages (session_id, role, content, tool_name, tool_calls, timestamp)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (f"text {name}", role, content, tool, calls, stores.T + number),
            ).lastrowid
        con.commit()
    return ids


@pytest.fixture(scope="module")
def filled(
    unpacked: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Path, dict[str, int]]]:
    """filled("head-3"): (a store of that layout with TEXTS beside its own, name → message id)."""
    made: dict[str, tuple[Path, dict[str, int]]] = {}

    def get(name: str) -> tuple[Path, dict[str, int]]:
        if name not in made:
            path = tmp_path_factory.mktemp(name) / "state.db"
            source = unpacked(name) / "state.db"
            with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(path)) as new:
                old.backup(new)
            if name == "head-cjk":  # as the agent writes without its tokenizer
                with closing(sqlite3.connect(path)) as con:
                    for verb in ("insert", "delete", "update"):
                        con.execute(f"DROP TRIGGER messages_fts_cjk_{verb}")
                    con.commit()
            made[name] = path, fill(path)
        return made[name]

    return get


def found(
    path: Path, typed: str, roles: tuple[str, ...] = search.ROLES, **more: Any
) -> search.Found:
    with db.reader(path) as con:
        asked = search.Asked(
            query.parse([typed]), roles=roles, limit=0, each=True, typed=typed, **more
        )
        return search.Searcher(con, asked).find()


@pytest.mark.parametrize("big", [False, True], ids=["", "as in a big store"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_route_leads_to_the_same_messages(
    layout: str, big: bool, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if big:  # every word is frequent, and the newest messages are looked at first
        for name in ("JUDGED", "MANY", "FEW"):
            monkeypatch.setattr(routes, name, 1)
        monkeypatch.setattr(routes, "WINDOW", 12)
    path, ids = filled(layout)
    names = {id_: name for name, id_ in ids.items()}
    wrong = {}
    for table, roles in ((QUERIES, search.ROLES), (TOOLS, ("tool",))):
        for typed, wanted in table.items():
            result = found(path, typed, roles)
            mine = [names[hit.id] for hit in result.hits if hit.id in names]
            assert len(mine) == len(set(mine)), typed
            if set(mine) != wanted:
                wrong[typed] = (set(mine) - wanted, wanted - set(mine))
    assert not wrong


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_index_is_asked_where_it_can_answer(layout: str, filled: Any) -> None:
    path, _ = filled(layout)
    with db.reader(path) as con:
        why = Routes(con).why
    assert (why is None) == (layout not in ("nofts", "head-stale")), why


def test_accents_at_hand_are_those_of_unicode() -> None:
    letters = map(chr, range(0x20, 0x7F))
    assert {one: routes.variants(one) for one in letters if routes.variants(one) != one} == {
        one: all_ for one, all_ in routes.accents().items() if one.isascii() and all_ != one
    }
    beyond = set("".join(routes.ACCENTED.values())) - routes.ACCENTED.keys()
    assert all(any(low <= one < high for low, high in routes.MARKED) for one in beyond)


def damage(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as con:
        con.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            con.execute(statement)
        con.commit()


DAMAGE = {
    "gone": ("DROP TABLE messages_fts",),
    "no trigram": ("DROP TABLE messages_fts_trigram",),
    "blocks gone": ("DELETE FROM messages_fts_data WHERE id > 10",),
    "trigram blocks gone": ("DELETE FROM messages_fts_trigram_data WHERE id > 10",),
    "structure gone": ("DELETE FROM messages_fts_data WHERE id = 10",),
    "rubbish": ("UPDATE messages_fts_data SET block = x'00ff00ff' WHERE id > 10",),
    "emptied": ("DELETE FROM messages_fts",),
    "trigger gone": ("DROP TRIGGER messages_fts_insert",),
    "other tokenizer": ("UPDATE sqlite_master SET sql = rtrim(sql, char(10) || ' )') || "
                        "', tokenize=''nosuch'')' WHERE name = 'messages_fts'",),
    "stemmed": ("UPDATE sqlite_master SET sql = rtrim(sql, char(10) || ' )') || "
                "', tokenize=''porter'')' WHERE name = 'messages_fts'",),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_index_is_left_and_the_answer_stays(
    kind: str, store: Callable[[str], Path]
) -> None:
    path = store("v22")
    queries = ("garden", "refactor*", "тест", "🌱", "磁盘", "the OR 你好")
    before = {typed: [hit.id for hit in found(path, typed).hits] for typed in queries}
    assert all(found(path, typed).why is None for typed in queries)
    damage(path, *DAMAGE[kind])
    for typed in queries:
        result = found(path, typed)
        assert [hit.id for hit in result.hits] == before[typed], typed
    assert found(path, "garden").why


def test_b25_wildcards_of_like_are_letters(filled: Any) -> None:
    for layout in ("head-0", "nofts"):
        path, ids = filled(layout)
        assert [hit.id for hit in found(path, "进度_1").hits] == [ids["progress"]]
        assert not found(path, "进%").hits


def test_b09_sql_is_text(filled: Any) -> None:
    path, _ = filled("head-3")
    size = path.read_bytes()
    for typed in ("'; DROP TABLE messages;--", "1 OR 1=1", '"; DROP TABLE', "a' OR 'a'='a"):
        found(path, typed)
    assert path.read_bytes() == size


@pytest.mark.parametrize("name", ["home-0.13", "home-0.19"])
def test_every_word_of_every_message_finds_it(name: str, store: Callable[[str], Path]) -> None:
    path = store(name)
    missed = []
    with db.reader(path) as con:
        rows = con.execute(
            f"SELECT id, role, content, tool_name, tool_calls FROM messages m "
            f"WHERE {con.schema.seen}"
        ).fetchall()
        words: dict[str, set[int]] = {}
        for row in rows:
            for word in search.content_text(row["content"]).split():
                if len(word) >= 2 and '"' not in word and query.make(word):
                    words.setdefault(word, set()).add(row["id"])
        for word, ids in words.items():
            plan = query.parse([f'"{word}"' if word in query.OPERATORS else word])
            asked = search.Asked(plan, roles=(), limit=0, each=True, typed=word)
            got = {hit.id for hit in search.Searcher(con, asked).find().hits}
            if not ids <= got:
                missed.append((word, ids - got))
    assert len(words) > 1000
    assert not missed


# --- order and shape


def sessions(result: search.Found) -> list[str]:
    return [hit.session_id for hit in result.hits]


def talk(path: Path, rows: list[tuple[str, str, str, float]], source: str = "cli") -> None:
    """(session, role, content, time) beside what is there."""
    with closing(sqlite3.connect(path)) as con:
        for session, role, content, time in rows:
            con.execute("INSERT OR IGNORE INTO sessions (id, source, started_at) VALUES (?, ?, ?)",
                        (session, source, time))  # fmt: skip
            con.execute("INSERT INTO messages (session_id, role, content, timestamp) "
                        "VALUES (?, ?, ?, ?)", (session, role, content, time))  # fmt: skip
        con.commit()


def answer(path: Path, typed: str, **more: Any) -> search.Found:
    with db.reader(path) as con:
        return search.Searcher(con, search.Asked(query.parse([typed]), typed=typed, **more)).find()


def test_b39_equal_hits_come_newest_first(store: Callable[[str], Path]) -> None:
    path = store("head-3")
    times = [stores.T + 3600 * hours for hours in (5, 1, 720, 9, 100)]
    talk(path, [(f"s{at:.0f}", "user", "the sameword again", at) for at in times])
    newest = [f"s{at:.0f}" for at in sorted(times, reverse=True)]
    assert sessions(answer(path, "sameword")) == newest
    assert sessions(answer(path, "sameword", sort="newest")) == newest
    assert sessions(answer(path, "sameword", sort="oldest")) == newest[::-1]


def test_many_hits_of_one_session_leave_room_for_others(store: Callable[[str], Path]) -> None:
    path = store("head-3")
    talk(path, [(f"old{n}", "user", "a wordy thing", stores.T + n) for n in range(4)])
    talk(path, [("loud", "user", "a wordy thing", stores.T + 1000 + n) for n in range(900)])
    result = answer(path, "wordy", limit=5)
    assert len(result.hits) == 5 and sessions(result)[0] == "loud"
    assert sessions(answer(path, "wordy", limit=5, sort="oldest"))[0] == "old0"


def test_cron_comes_after_people(store: Callable[[str], Path]) -> None:
    path = store("head-3")
    talk(path, [("person", "user", "a long talk about chronword and " + "more " * 200, stores.T)])
    talk(path, [(f"c{n}", "user", "chronword", stores.T + 9 + n) for n in range(30)], "cron")
    assert sessions(answer(path, "chronword", limit=3))[0] == "person"


def test_b11_the_exact_query_ranks_first(store: Callable[[str], Path]) -> None:
    path = store("head-3")
    talk(path, [("exact", "user", "the copper kettle boils", stores.T),
                ("loose", "user", "a kettle of copper, kettle, copper", stores.T + 5)])  # fmt: skip
    assert sessions(answer(path, "copper kettle"))[0] == "exact"


def test_b32_times_narrow_before_the_limit(store: Callable[[str], Path]) -> None:
    path = store("head-0")
    talk(path, [(f"out{n}", "user", "timely timely", stores.T + 5000 + n) for n in range(500)])
    talk(path, [("in1", "user", "a timely word", stores.T)])
    talk(path, [("in2", "user", "timely", stores.T + 9)])
    within = Selection(after=stores.T, before=stores.T + 10)
    assert set(sessions(answer(path, "timely", limit=5, selection=within))) == {"in1", "in2"}
    assert sessions(answer(path, "timely", selection=Selection(before=stores.T + 9))) == ["in1"]


@pytest.mark.parametrize("layout", ["head-0", "head-3", "nofts"])
def test_the_order_is_the_same_on_every_route(layout: str, store: Callable[[str], Path]) -> None:
    orders = []
    for name in (layout, "head-1"):
        path = store(name)
        texts = ["orderly", "orderly orderly", "orderly " + "filler " * 300, "orderly queue 磁盘"]
        talk(path, [(f"s{n}", "user", texts[n % 4], stores.T + n) for n in range(80)])
        orders.append([
            [(hit.session_id, hit.id) for hit in answer(path, typed, sort=sort).hits]
            for typed in ("orderly", "磁盘", "orderly queue OR orderly") for sort in search.SORTS
        ])  # fmt: skip
    assert orders[0] == orders[1]


def test_b38_snippets_are_bounded_and_from_the_text_that_matched(
    store: Callable[[str], Path],
) -> None:
    path = store("head-3")
    big = "ж" * 1_000_000 + " needleword " + "ы" * 1_000_000
    talk(path, [("big", "user", big, stores.T)])
    call = json.dumps([{"id": "c", "function": {"name": "terminal", "arguments": json.dumps(
        {"text": "y " * 250_000 + "threadword"})}}])  # fmt: skip
    with closing(sqlite3.connect(path)) as con:
        con.execute("INSERT INTO messages (session_id, role, tool_calls, timestamp) "
                    "VALUES ('big', 'assistant', ?, 1)", (call,))  # fmt: skip
        con.commit()
    for typed in ("needleword", "threadword"):
        with db.reader(path) as con:
            asked = search.Asked(query.parse([typed]), typed=typed)
            result = search.Searcher(con, asked).find()
            (one,) = search.discoveries(con, asked, result, max_chars=50)
            assert f">>>{typed}<<<" in one["snippet"]
            assert len(one["snippet"]) < 300
            assert len(json.dumps(one)) < 2_000_000


def test_snippets() -> None:
    def of(text: str, typed: str) -> str | None:
        return search.snippet(query.composed(text), query.terms(query.parse([typed])))

    assert of("the quick fox", "quick") == "the >>>quick<<< fox"
    assert of("a\n\n b   c", "c") == "a b >>>c<<<"
    assert of("请检查nginx服务", "nginx") == "请检查>>>nginx<<<服务"
    assert of("Cafe\u0301!", "cafe") == ">>>Café<<<!"
    assert of("connection\n pool", '"connection pool"') == ">>>connection pool<<<"
    assert of("aaa", "xyz") is None
    assert of("磁磁磁", "磁磁 磁") == ">>>磁磁<<<>>>磁<<<" or of("磁磁磁", "磁磁 磁")
    long = of("x " * 500 + "word" + " y" * 500, "word")
    assert long is not None and long.startswith("...") and long.endswith("...")
    assert ">>>word<<<" in long and len(long) < 230


def test_b12_a_search_that_finds_nothing_says_what_there_is(store: Callable[[str], Path]) -> None:
    path = store("head-3")
    with db.reader(path) as con:
        asked = search.Asked(query.parse(["copper shallowword xyzzy"]))
        assert not search.Searcher(con, asked).find().hits
        where = dict(search.whereabouts(con, asked))
    assert where["shallowword"] == {"tool": 1} and where["xyzzy"] == {}
    assert set(where["copper"]) == {"user", "assistant"}


PIECES = (
    "a", "b", "ab", "cafe", "é", "É", "e\u0301", "nginx", "v2", "job_id", ".", "-", "_", " ", "  ",
    "\n", "磁", "盘", "磁盘", "한", "국", "🚀", "🤖", "→", "ё", "Ж", "ế", "ß", "İ", "ς", "'", "’",
    "\\", "/", ":", "u00e9", "n", "7", "٣", "ﬁ", "が", "か\u3099", "\t",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_routes_agree_on_texts_nobody_thought_of(
    seed: int, store: Callable[[str], Path]
) -> None:
    chance = random.Random(seed)

    def text(most: int) -> str:
        return "".join(chance.choice(PIECES) for _ in range(chance.randint(1, most)))

    rows: list[tuple[Any, ...]] = []
    for _ in range(120):
        said, raw = text(9), chance.random() < 0.3
        parts = json.dumps([{"type": "text", "text": said}], ensure_ascii=not raw)
        arguments = json.dumps({"command": said}, ensure_ascii=not raw)
        call = json.dumps([{"function": {"name": "t", "arguments": arguments}}])
        rows.append(chance.choice([
            ("user", said, None), ("user", said, None), ("user", search.messages.SENTINEL + parts,
            None), ("assistant", None, call), ("tool", "x " * 5000 + said, None),
        ]))  # fmt: skip
    paths = {name: store(name) for name in ("nofts", "head-0", "head-1", "head-3")}
    for path in paths.values():
        with closing(sqlite3.connect(path)) as con:
            for number, row in enumerate(rows):
                con.execute(
                    "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) "
                    "VALUES (?, ?, ?, ?, 1)",
                    (stores.CRON if number % 7 == 3 else stores.TOOLS, *row),
                )
            con.commit()
    for _ in range(30):
        typed = text(4) if chance.random() < 0.8 else f'"{text(3)}" {text(2)}'
        try:
            query.parse([typed])
        except Usage:
            continue
        for roles in (search.ROLES, ("tool",)):
            answers = {name: sorted(hit.id for hit in found(path, typed, roles).hits)
                       for name, path in paths.items()}  # fmt: skip
            assert len({str(answer) for answer in answers.values()}) == 1, (typed, answers)
