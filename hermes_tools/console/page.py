"""A conversation as one HTML file: everything inside it, nothing from the network, no script."""

import re
from collections.abc import Iterable, Iterator

from hermes_tools.console import text, transcript
from hermes_tools.console.transcript import Turn
from hermes_tools.store.sessions import Conversation

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --dim: #6a7079; --paper: #fbfaf7;
  --card: #ffffff; --line: #e2dfd8; --you: #fff4d6; --gold: #a87400; --green: #1f7a4d;
  --code: #f3f1ec; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e4df; --dim: #9a9fa8; --paper: #16181b;
  --card: #1e2125; --line: #33373d; --you: #2e2813; --gold: #e0b24a; --green: #5cc08d;
  --code: #15171a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
article { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
header { border-bottom: 1px solid var(--line); margin-bottom: 1.5rem; padding-bottom: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
header p { margin: 0; color: var(--dim); font-size: .875rem; }
section { margin: 0 0 1.25rem; }
section > h2 { font-size: .8125rem; margin: 0 0 .25rem; color: var(--green); }
section > h2 time, section > h2 span { color: var(--dim); font-weight: normal; margin-left: .5em; }
.user > h2 { color: var(--gold); }
.tool > h2, .system > h2 { color: var(--dim); }
.words { background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
  padding: .75rem 1rem; }
.user .words { background: var(--you); border-color: transparent; }
.words p { margin: 0; white-space: pre-wrap; }
.words p + pre, .words pre + p, .words pre + pre { margin-top: .6rem; }
.note .words { opacity: .65; }
pre { margin: 0; padding: .75rem; background: var(--code); border-radius: .5rem;
  overflow: auto; max-height: 30rem; font: .8125rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas,
  "Noto Sans Mono", monospace; white-space: pre-wrap; }
code { font: .875em ui-monospace, "SF Mono", Menlo, Consolas, monospace; background: var(--code);
  border-radius: .25rem; padding: .1em .3em; }
pre code { font-size: inherit; background: none; padding: 0; }
details { margin: .5rem 0 0; border: 1px solid var(--line); border-radius: .5rem;
  font-size: .875rem; }
summary { cursor: pointer; padding: .5rem .75rem; color: var(--dim); }
summary b { color: var(--ink); font-weight: 600; }
details pre { border-radius: 0 0 .5rem .5rem; border-top: 1px solid var(--line); }
hr { border: 0; border-top: 1px dashed var(--line); margin: 2rem 0 .5rem; }
.goes { color: var(--dim); font-size: .8125rem; text-align: center; margin: 0 0 1.5rem; }
@media (max-width: 30rem) { article { padding: 1rem .75rem 3rem; } h1 { font-size: 1.25rem; }
  .words { padding: .625rem .75rem; } }
@media print { details pre { max-height: none; } section { break-inside: avoid-page; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
# Compiled at their first use.
FENCE = r"(?ms)^(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^\1[`~]*[ \t]*$\n?|\Z)"
INLINE = r"`([^`\n]+)`|\*\*([^*\n]+)\*\*"


def escape(value: str) -> str:
    """Text as it stands in a page; loaded late, since most of what is shown is no page."""
    from html import escape as escaped

    return escaped(value)


def head(title: str) -> Iterator[str]:
    """The page up to its first conversation."""
    yield "<!DOCTYPE html>"
    yield '<html><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f"<title>{escape(title)}</title>"
    yield f"<style>{STYLE}</style></head><body>"


def foot() -> str:
    """The end of the page."""
    return "</body></html>"


def article(one: Conversation, spoken: Iterable[Turn], whole: bool = False) -> Iterator[str]:
    """One conversation; tools folded unless `whole`."""
    clock = transcript.Clock()
    yield f'<article><header><h1 dir="auto">{escape(transcript.headline(one))}</h1>'
    yield from (f"<p>{escape(fact)}</p>" for fact in transcript.facts(one))
    yield "</header>"
    for turn in spoken:
        if turn.goes_on:
            yield f'<hr><p class="goes">goes on in {escape(text.line(turn.goes_on))}</p>'
        yield from section(turn, clock(turn.when), whole)
    yield "</article>"


def section(turn: Turn, when: str, whole: bool) -> Iterator[str]:
    """One message."""
    role = turn.role if turn.role in transcript.NAMES else "other"
    yield f'<section class="{role}{" note" if turn.note else ""}">'
    if turn.role == "tool":
        title = f"<b>{escape(turn.tool or 'tool')}</b> {escape(size(turn))}"
        yield details(title, turn.words, whole)
    else:
        note = f"<span>{turn.note}</span>" if turn.note else ""
        time = f"<time>{when}</time>" if when else ""
        yield f"<h2>{escape(turn.name)}{time}{note}</h2>"
        if turn.words:
            yield f'<div class="words" dir="auto">{body(turn.words)}</div>'
        for name, arguments in turn.calls:
            yield details(f"calls <b>{escape(name)}</b>", arguments, whole)
    yield "</section>"


def size(turn: Turn) -> str:
    """`answered, 12 lines`."""
    return f"answered, {text.count(turn.words.count(chr(10)) + 1, 'line')}"


def details(title: str, words: str, whole: bool) -> str:
    """A folded block; `title` is HTML already."""
    opened = " open" if whole else ""
    return f"<details{opened}><summary>{title}</summary><pre>{escape(words)}</pre></details>"


def body(words: str) -> str:
    """Text with its code blocks, `code` and **bold** set as such; all else as it was typed."""
    parts, at = [], 0
    for found in re.finditer(FENCE, words):
        parts.append(paragraph(words[at : found.start()]))
        parts.append(f"<pre><code>{escape(found[2].rstrip(chr(10)))}</code></pre>")
        at = found.end()
    parts.append(paragraph(words[at:]))
    return "".join(parts)


def paragraph(words: str) -> str:
    """Text between code blocks, escaped before anything is marked in it."""
    words = words.strip("\n")
    if not words.strip():
        return ""
    marked = re.sub(
        INLINE, lambda found: f"<code>{found[1]}</code>" if found[1] else f"<b>{found[2]}</b>",
        escape(words),
    )  # fmt: skip
    return f"<p>{marked}</p>"
