"""hermes-session-redact: take secrets out of JSON Lines"""

from typing import Annotated, Any

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import option
from hermes_tools.store.errors import Damaged

Quiet = Annotated[bool, option("-q", "--quiet", help="No records; only the report.")]


def redact(quiet: Quiet = False, version: streams.Version = False) -> None:
    """Copy JSON Lines from standard input to standard output, with [redacted:KIND] in place of
    every secret that its rules find: keys of providers, tokens, private keys, passwords in URLs,
    cookies. A line without any passes unchanged. How many were found goes to standard error.

    The rules know many shapes, not all: read what you pass on.
    """
    from hermes_tools.store.redaction import Redactor

    redactor = Redactor()
    records = hit = 0
    for number, line in streams.lines(streams.stdin()):
        record = exact(line, f"standard input, line {number}")
        clean = redactor.clean(record)
        records += 1
        hit += clean is not record
        if not quiet:
            streams.write(line + b"\n" if clean is record else streams.dumps(clean))
    streams.flush()
    streams.complain(report(redactor.counts, hit, records))


def exact(line: bytes, where: str) -> Any:
    """A line of JSON of any kind, numbers of any length as they are. Raises Damaged."""
    import json

    try:
        return json.loads(line)
    except ValueError as error:
        raise Damaged(f"{where}: not JSON: {error}") from error


def report(counts: dict[str, int], hit: int, records: int) -> str:
    """`3 secrets in 2 of 17 records: openrouter-key 1, password 2`."""
    if not counts:
        return f"no secret that its rules know in {text.count(records, 'record')}"
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(counts.items()))
    found = text.count(sum(counts.values()), "secret")
    return f"{found} in {hit:,} of {text.count(records, 'record')}: {kinds}"


main = entry(redact)
