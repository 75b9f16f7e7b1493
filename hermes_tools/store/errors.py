"""The ways a store can say no. The console maps each to an exit status (console/status.py)."""


class StoreError(Exception):
    """Base of all; its text reads `thing: reason`, one line, for a person."""


class Usage(StoreError):
    """What was asked for makes no sense: a bad age, an empty query."""


class Negative(StoreError):
    """An answer, but no: no such session, a title that is taken."""


class NotFound(Negative):
    """A session, message or title that is not in this store."""


class Ambiguous(Negative):
    """A name that several sessions answer to; the text lists the candidates."""


class Missing(StoreError):
    """No store (or input file) at this place."""


class Damaged(StoreError):
    """A file that is no store, a damaged one, or a malformed record."""


class Busy(StoreError):
    """Somebody else holds what this needs; the same call may succeed later."""


class Denied(StoreError):
    """The system does not permit it."""


class Unsupported(StoreError):
    """The store lacks what this needs, or has what we do not know."""


class Failed(StoreError):
    """Input, output or disk failed."""
