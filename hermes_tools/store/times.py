"""Times and ages: stored numbers that may be garbage, and the words people type."""

import math
import re
import time
from datetime import datetime, timezone
from typing import Any

from hermes_tools.store.errors import Usage

# Outside of this window a stored number is no time: zero, milliseconds, garbage (2.1, 164).
EPOCH_FIRST = 946_684_800.0  # 2000-01-01
EPOCH_LAST = 4_102_444_800.0  # 2100-01-01

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "": 86400.0}
AGE = r"([0-9]+(?:\.[0-9]+)?)\s*([smhdw]?)"


def valid(value: Any) -> float | None:
    """A stored time as seconds, None where it is none (NULL, text, milliseconds, absurd)."""
    if isinstance(value, int | float) and EPOCH_FIRST <= value < EPOCH_LAST:
        return float(value)
    return None


def iso(value: Any) -> str | None:
    """A stored time as ISO 8601 UTC to the second, None where it is none."""
    seconds = valid(value)
    if seconds is None:
        return None
    return datetime.fromtimestamp(math.floor(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(text: str) -> float:
    """Seconds of `90d`, `12h`, `2w`, `30` (days). Raises Usage."""
    found = re.fullmatch(AGE, text.strip())
    if not found:
        raise Usage(f"{text!r} is no age; write 90d, 12h, 2w, or a number of days")
    seconds = float(found[1]) * UNITS[found[2]]
    if seconds > 100 * 366 * 86400:
        raise Usage(f"{text!r} is longer than a hundred years")
    return seconds


def moment(text: str, now: float | None = None) -> float:
    """Unix seconds of an ISO date or date-time (local unless zoned) or of an age ago.

    Raises Usage for anything else, and for a time in the future.
    """
    now = time.time() if now is None else now
    if re.fullmatch(AGE, text.strip()):
        return now - age(text)
    cleaned = re.sub(r"[zZ]$", "+00:00", text.strip())
    try:
        seconds = datetime.fromisoformat(cleaned).timestamp()
    except (ValueError, OverflowError, OSError):
        raise Usage(
            f"{text!r} is no time; write 2026-03-01, 2026-03-01T12:30, or an age such as 7d"
        ) from None
    if seconds > now:
        raise Usage(f"{text!r} is in the future")
    return seconds
