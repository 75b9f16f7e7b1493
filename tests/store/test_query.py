"""The query language: what is asked for, and which texts answer."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_tools.store.errors import Usage
from hermes_tools.store.query import And, Or, Term, composed, fold, make, matches, parse, terms

# query, texts it must find, texts it must not
TABLE = [
    ("blue-green", ["a blue-green deploy", "BLUE-GREENISH"], ["blue green", "green-blue"]),
    ("src/api/main.go", ["see src/api/main.go:12"], ["src api main go", "src/api/main.rs"]),
    ("it's", ["well, it's done", "IT'S"], ["its", "it is"]),
    ("O'Brien", ["O'Brien; DROP TABLE notes; --"], ["Brien"]),
    ("#482", ["fixes #482."], ["482", "#4821"]),
    (r"C:\tmp", [r"in C:\tmp now", r"c:\TMP\x"], ["C tmp", "C:/tmp"]),
    ("p99.9", ["the p99.9 latency", "p99.95"], ["p99 of 9", "xp99.9"]),
    (".npmrc", [".npmrc lives here", "~/.npmrc"], ["npmrc"]),
    ("ops@example.org", ["write to ops@example.org."], ["example.org ops", "devops@example.org"]),
    ("v3.4.1-rc2", ["tag v3.4.1-rc2", "v3.4.1-rc21"], ["v3.4.1 rc2", "rc2 v3.4.1", "v3.4"]),
    ("FIXME: retry", ["FIXME: retry the job"], ["FIXME later", "retry"]),
    ("10:30", ["at 10:30"], ["10 30", "30:10", "10:300"]),
    ("content: retry", ["the content: we retry"], ["retry"]),
    ("job_id", ["worker job_id7 died", "job_id"], ["job id", "myjob_id", "jobs"]),
    ("job_id7", ["worker job_id7 died"], ["job_id8"]),
    ("tar -xzf", ["unpack with tar -xzf"], ["tar xzf"]),
    ("python -m", ["start python -m mod"], ["python m"]),
    ("--verbose", ["add --verbose"], ["verbose"]),
    ("approx.", ["approx. ten"], ["approximately"]),
    ("what is nginx?", ["what nginx is"], ["what is it"]),
    ('"connection pool"', ["connection pool exhausted", "connection\n  pool"],
     ["pool of connection objects", "connections pool", "connection pools"]),
    ('"connection pool', ["connection pool", "pool of connection objects"], ["connection"]),
    ('pool"', ["a pool"], ["pools"]),
    ("fish OR bird", ["a fish", "a bird"], ["a cat"]),
    ("fish AND bird", ["bird, fish"], ["a fish"]),
    ("fish NOT bird", ["a fish"], ["fish and bird", "cat"]),
    ("fish AND NOT bird", ["a fish"], ["fish and bird"]),
    ("fish bird OR cat", ["cat", "bird fish"], ["fish", "bird"]),
    ("fish or bird", ["fish or bird"], ["fish bird"]),
    ("AND fish OR", ["fish"], ["or"]),
    ("fish OR OR bird", ["fish", "bird"], ["or"]),
    ("fish NOT", ["fish"], ["not"]),
    ("deploy*", ["deployment", "deploy"], ["redeploy"]),
    ("deploy", ["Deploy!"], ["deployment", "redeploy"]),
    ("(term", ["a (term here)"], ["term"]),
    ("*term", ["**term**"], ["term"]),
    ("^term", ["^term"], ["term"]),
    ("NEAR( x", ["NEAR( x"], ["near x"]),
    ("1 OR 1=1", ["1=1", "no 1"], ["11"]),
    ("磁盘", ["磁盘", "今天磁盘满了"], ["磁 盘"]),
    ("备份任务", ["今天的备份任务失败了需要重跑"], ["备份的任务"]),
    ("周五", ["周五 上线", "他们周五上线了", "周五。"], ["周四"]),
    ("重启*", ["需要重启服务"], ["重新启动"]),
    ("部署计划 周五", ["周五的部署计划"], ["部署计划", "周五"]),
    ("进度_1", ["进度_1"], ["进度x1", "进度1"]),
    ("nginx", ["请检查nginx服务", "nginx", "nginx服务", "用nginx"], ["nginxs", "xnginx"]),
    ("v2", ["버전v2배포완료", "v2."], ["v22", "버전v21배포"]),
    ("лампочк", ["купили новую лампочку"], ["лампа"]),
    ("ЛАМПОЧКУ", ["купили новую лампочку"], []),
    ("ёж", ["Ежик", "ЁЖ"], ["уж"]),
    ("배포", ["버전v2배포완료", "배포"], ["배치"]),
    ("cafe", ["Café", "cafe", "cafe\u0301"], ["cafés", "decafe"]),
    ("café", ["Café", "cafe", "CAFÉS"], ["caf"]),
    ("viet", ["Việt Nam"], ["vieta"]),
    ("größe", ["Dateigröße", "GRÖßE"], ["grosse"]),
    ("🚀", ["release 🚀 done", "go🚀"], ["release"]),
    ("❤️", ["i ❤ it", "❤️"], ["love"]),
    ("→", ["a → b", "a→b"], ["a -> b"]),
    ("a -- b", ["a b"], ["a"]),
    ("كتاب", ["الكتاب"], ["مكتبة"]),
    ("ナビ", ["カーナビを"], ["ナミ"]),
    ("हिन्दी", ["यह हिन्दी है"], ["हिन्दू"]),
]  # fmt: skip


def found(query: str, text: str) -> bool:
    return matches(parse([query]), [fold(composed(text))])


@pytest.mark.parametrize(("query", "yes", "no"), TABLE, ids=[row[0] for row in TABLE])
def test_finds_what_is_meant(query: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if not found(query, text)] == []
    assert [text for text in no if found(query, text)] == []


@pytest.mark.parametrize(
    "query", ["", "  ", "--", ".", "...", "*", '""', '"" fish', "NOT fish", "fish OR NOT bird",
              "AND", "OR OR", "NOT", '"--"', "。"]
)  # fmt: skip
def test_b02_nothing_to_look_for_is_a_usage_error(query: str) -> None:
    with pytest.raises(Usage):
        parse([query])


def test_an_empty_word_among_others_is_an_unset_variable() -> None:
    with pytest.raises(Usage, match="unset"):
        parse(["fish", ""])
    with pytest.raises(Usage):
        parse([])


def test_a_book_is_no_query() -> None:
    with pytest.raises(Usage):
        parse(["word " * 30000])
    with pytest.raises(Usage):
        parse(["w " * 300])


def test_plan_and_its_terms() -> None:
    plan = parse(["fish bird NOT cat OR dog fish"])
    assert isinstance(plan, Or)
    first = plan.any[0]
    assert isinstance(first, And) and [term.text for term in first.unwanted] == ["cat"]
    assert [term.text for term in terms(plan)] == ["fish", "bird", "dog"]


def test_words_may_lie_in_several_texts_a_phrase_in_one() -> None:
    assert matches(parse(["fish bird"]), ["fish", "bird"])
    assert not matches(parse(['"fish bird"']), ["fish", "bird"])


def test_places_do_not_overlap() -> None:
    term = make("磁磁")
    assert term is not None
    assert list(term.places("磁磁磁磁")) == [(0, 2), (2, 4)]


LETTERS = st.sampled_from("ab1Zé_.-'\"*:#()磁盘한ё🚀 \t\n\\/,?€ANDORT") | st.characters(
    exclude_categories=("Cs",)
)


@given(st.text(LETTERS, max_size=40))
def test_any_text_is_a_plan_or_a_usage_error(query: str) -> None:
    try:
        plan = parse([query])
    except Usage:
        return
    assert terms(plan)
    for term in terms(plan):
        assert term.text and term.text == " ".join(term.text.split())


@given(st.text(LETTERS, min_size=1, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_a_term_is_found_where_it_stands_alone(word: str, before: str, after: str) -> None:
    typed = composed(re.sub(r"[\s\"]", "", word))  # as parse() hands it on
    term = make(typed)
    if term is not None:
        assert term.find(fold(composed(f"{before} {typed} {after}"))) is not None


@given(st.text(max_size=30), st.text(max_size=30))
def test_folding_is_done_letter_by_letter(one: str, two: str) -> None:
    assert fold(one) + fold(two) == fold(one + two)
    assert fold(fold(one)) == fold(one)


@given(st.text(LETTERS, max_size=20), st.text(LETTERS, max_size=12))
def test_what_is_found_is_a_place_in_the_text(text: str, word: str) -> None:
    term = make(word)
    folded = fold(composed(text))
    at = term.find(folded) if term else None
    if term and at:
        assert isinstance(term, Term)
        assert " ".join(folded[at[0] : at[1]].split()) == term.text
