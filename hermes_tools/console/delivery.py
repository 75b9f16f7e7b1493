"""Messages to the agent's platforms: a thread opened, a text sent.

Telegram, Discord and Slack are spoken to directly, since a reply goes into a thread of its own;
all others by way of apprise. No secret ever leaves this module: not in errors, not in records.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from hermes_tools.store.errors import Failed, Unsupported
from hermes_tools.store.platforms import Channel, Platforms

BASES = {
    "telegram": "https://api.telegram.org",
    "discord": "https://discord.com/api/v10",
    "slack": "https://slack.com/api",
}
# Longest message and thread name a platform takes, and what it counts in.
LENGTHS = {"telegram": 4096, "discord": 2000, "slack": 4000}
NAME_LENGTHS = {"telegram": 128, "discord": 80}
TIMEOUT = 30.0
TRIES = 4
LONGEST_WAIT = 60.0  # a server that asks for more is not waited for
ARCHIVE_AFTER = 1440  # minutes; Discord's own word for a day
SYSTEM_USER = "system:handoff"

pause = time.sleep


class Refused(Failed):
    """The platform said no: the right is missing, the chat is not there, the token is wrong."""


@dataclass(frozen=True)
class Api:
    """One platform's HTTP interface. `secrets` never show in what it raises."""

    platform: str
    base: str
    headers: Mapping[str, str]
    secrets: tuple[str, ...]

    def call(self, path: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """POST JSON, JSON back. A server that is busy (429) or ill (5xx) is asked again, after
        as long as it wants; raises Refused where it says no, Failed where it does not answer.
        """
        for attempt in range(1, TRIES + 1):
            status, headers, body = self._post(path, payload)
            if status == 200 and body.get("ok") is not False:
                return body
            if 200 < status < 300:
                return body
            reason = self._reason(status, body)
            wait = _wait(status, headers, body, attempt)
            if wait is None or attempt == TRIES or wait > LONGEST_WAIT:
                kind = Refused if 400 <= status < 500 and status != 429 else Failed
                raise (Refused if status == 200 else kind)(f"{self.platform}: {reason}")
            pause(wait)
        raise AssertionError

    def _post(
        self, path: str, payload: Mapping[str, Any]
    ) -> tuple[int, Mapping[str, str], dict[str, Any]]:
        import http.client
        import urllib.error
        import urllib.request

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None  # the token belongs to this server alone

        request = urllib.request.Request(
            self.base + path, orjson.dumps(payload),
            {"Content-Type": "application/json; charset=utf-8",
             "User-Agent": "hermes-tools", **self.headers},
        )  # fmt: skip
        try:
            with urllib.request.build_opener(Stay).open(request, timeout=TIMEOUT) as answer:
                return answer.status, dict(answer.headers), _object(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), _object(error.read())
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            return 599, {}, {"error": redact(str(reason), self.secrets)}

    def _reason(self, status: int, body: Mapping[str, Any]) -> str:
        words = next(
            (body[name] for name in ("description", "message", "error")
             if isinstance(body.get(name), str)), "",
        )  # fmt: skip
        text = f"{words}" if status in (200, 599) else f"{status} {words}"
        return redact(text.strip(), self.secrets)


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _wait(
    status: int, headers: Mapping[str, str], body: Mapping[str, Any], attempt: int
) -> float | None:
    """Seconds after which to ask again, None for never."""
    if status == 429 or body.get("error") == "ratelimited":
        inner = body.get("parameters")
        asked: Any = (
            (inner.get("retry_after") if isinstance(inner, Mapping) else None)
            or body.get("retry_after")
            or {name.lower(): value for name, value in headers.items()}.get("retry-after")
        )
        try:
            return max(0.0, float(asked))
        except (TypeError, ValueError):
            return float(attempt)
    return float(2 ** (attempt - 1)) if status >= 500 else None


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """A text without the secrets, nor their URL-quoted form; one line."""
    forms = {form for secret in secrets for form in (secret, quote(secret, safe=""))}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= 4:
            text = text.replace(form, "***")
    return " ".join(text.split())


SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|_KEY$|_SID$|DELIVER_URL")


def secrets(platforms: Platforms) -> tuple[str, ...]:
    """Every value of a home's environment and settings that must not be seen."""
    found = {value for name, value in platforms.env.items() if SECRET.search(name) and value}
    for section in platforms.sections.values():
        found |= {
            str(value) for name, value in section.items()
            if SECRET.search(name.upper()) and isinstance(value, str) and value
        }  # fmt: skip
    for url in list(found):
        if "://" in url:
            parts = urlsplit(url)
            found |= {part for part in (parts.username, parts.password) if part}
    return tuple(sorted(found))


@dataclass(frozen=True)
class Place:
    """Where a reply has gone or will go: `thread_id` None is the home channel itself. `remark`
    says why there is no thread.
    """

    channel: Channel
    thread_id: str | None = None
    remark: str | None = None

    @property
    def origin(self) -> dict[str, Any]:
        """The source of a later message there, as the gateway's adapters describe it."""
        channel, thread = self.channel, self.thread_id or self.channel.thread_id
        origin: dict[str, Any] = {
            "platform": channel.platform, "chat_id": channel.chat_id,
            "chat_name": channel.name, "chat_type": "dm", "user_id": SYSTEM_USER,
            "user_name": "Handoff", "thread_id": thread,
        }  # fmt: skip
        if thread is None:
            return origin
        if channel.platform == "discord":
            # There a thread is a channel of its own.
            origin.update(chat_type="thread", chat_id=thread, parent_chat_id=channel.chat_id)
        elif not is_private(channel):
            origin["chat_type"] = "group"
        else:
            origin["user_id"] = channel.chat_id
        return origin


def is_private(channel: Channel) -> bool:
    """Whether a home channel is a conversation with one person."""
    if channel.platform == "telegram":
        return not channel.chat_id.startswith(("-", "@"))
    if channel.platform == "slack":
        return channel.chat_id.startswith("D")
    return channel.platform not in ("discord", "matrix", "mattermost")


class Courier:
    """Speaks to the platforms of one home."""

    def __init__(self, platforms: Platforms) -> None:
        self.platforms = platforms
        self.secrets = secrets(platforms)

    def redact(self, text: str) -> str:
        """A text without this home's secrets."""
        return redact(text, self.secrets)

    def open(self, channel: Channel, name: str) -> Place:
        """A fresh thread in a home channel. Where the platform has none, or does not permit it,
        the channel itself. Raises Failed where the platform does not answer.
        """
        opener = THREADS.get(channel.platform)
        if opener is None or self.own_url(channel.platform):
            return Place(channel)
        limit = NAME_LENGTHS.get(channel.platform, len(name))
        try:
            return Place(channel, opener(self.api(channel.platform), channel, name[:limit]))
        except Refused as error:
            return Place(channel, None, self.redact(str(error)))

    def send(self, place: Place, text: str, title: str = "") -> None:
        """Deliver a text, in as many messages as it takes. Raises Failed, Unsupported."""
        channel = place.channel
        if channel.platform in LENGTHS and not self.own_url(channel.platform):
            api = self.api(channel.platform)
            thread = place.thread_id or channel.thread_id
            for piece in pieces(text, LENGTHS[channel.platform]):
                SENDERS[channel.platform](api, channel, thread, piece)
            return
        self.apprise(channel, text, title)

    def api(self, platform: str) -> Api:
        """The interface of Telegram, Discord or Slack. Raises Unsupported without a token."""
        name = f"{platform.upper()}_BOT_TOKEN"
        section = self.platforms.sections.get(platform, {})
        token = self.platforms.env.get(name) or str(section.get("token") or "")
        if not token:
            raise Unsupported(f"{platform}: {name} is not set")
        base = self.platforms.env.get(f"HERMES_DELIVER_BASE_{platform.upper()}")
        base = (base or BASES[platform]).rstrip("/")
        headers = {"discord": {"Authorization": f"Bot {token}"},
                   "slack": {"Authorization": f"Bearer {token}"}}.get(platform, {})  # fmt: skip
        if platform == "telegram":
            base += f"/bot{token}"
        return Api(platform, base, headers, (*self.secrets, token))

    def own_url(self, platform: str) -> str | None:
        """HERMES_DELIVER_URL_<PLATFORM>: an apprise URL that is to be used instead."""
        return self.platforms.env.get(f"HERMES_DELIVER_URL_{platform.upper()}") or None

    def apprise(self, channel: Channel, text: str, title: str) -> None:
        """Deliver by way of apprise. Raises Unsupported, Failed."""
        url = self.own_url(channel.platform) or apprise_url(channel, self.platforms.env)
        if url is None:
            raise Unsupported(
                f"{channel.platform}: no way to deliver there; set "
                f"HERMES_DELIVER_URL_{channel.platform.upper()} to an apprise URL, or use --deliver"
            )
        try:
            import apprise
        except ImportError:
            raise Unsupported(
                f"{channel.platform}: needs apprise: pip install 'hermes-tools[deliver]'"
            ) from None
        import logging

        logger = logging.getLogger("apprise")
        logger.propagate = False  # its words go into the reason, redacted, not to the screen
        notifier = apprise.Apprise()
        capture: Any = apprise.LogCapture
        with capture(level=logging.WARNING) as log:
            done = notifier.add(url) and notifier.notify(
                body=text, title=title, body_format=apprise.NotifyFormat.TEXT
            )
            words = log.getvalue()
        if not done:
            reason = redact(words, (*self.secrets, url)) or "not delivered"
            reason = re.sub(r"[-\d]+ [\d:,]+ - (?:WARNING|ERROR) - ", "", reason)
            raise Failed(f"{channel.platform}: {reason[:300]}")


def telegram_thread(api: Api, channel: Channel, name: str) -> str:
    """A topic: in a group with topics, or in a private chat where the bot has them."""
    made = api.call("/createForumTopic", {"chat_id": _number(channel.chat_id), "name": name})
    result = made.get("result")
    return _id(api, result.get("message_thread_id") if isinstance(result, Mapping) else None)


def discord_thread(api: Api, channel: Channel, name: str) -> str:
    """A public thread under the channel; where that is not to be had, one that hangs on a first
    message.
    """
    path = f"/channels/{quote(channel.chat_id, safe='')}"
    wanted: dict[str, Any] = {"name": name, "auto_archive_duration": ARCHIVE_AFTER}
    try:
        made = api.call(f"{path}/threads", {**wanted, "type": 11})
    except Refused:
        seed = api.call(f"{path}/messages", {"content": name, "allowed_mentions": {"parse": []}})
        message = quote(_id(api, seed.get("id")), safe="")
        made = api.call(f"{path}/messages/{message}/threads", wanted)
    return _id(api, made.get("id"))


def slack_thread(api: Api, channel: Channel, name: str) -> str:
    """A first message; its time stamp is the thread."""
    seed = api.call("/chat.postMessage", {"channel": channel.chat_id, "text": name})
    return _id(api, seed.get("ts"))


def telegram_send(api: Api, channel: Channel, thread: str | None, text: str) -> None:
    """One message of plain text."""
    payload: dict[str, Any] = {"chat_id": _number(channel.chat_id), "text": text}
    if thread:
        payload["message_thread_id"] = _number(thread)
    api.call("/sendMessage", payload)


def discord_send(api: Api, channel: Channel, thread: str | None, text: str) -> None:
    """One message; nobody is notified by a name in it."""
    where = quote(thread or channel.chat_id, safe="")
    payload = {"content": text, "allowed_mentions": {"parse": []}}
    api.call(f"/channels/{where}/messages", payload)


def slack_send(api: Api, channel: Channel, thread: str | None, text: str) -> None:
    """One message, a reply in the thread."""
    payload = {"channel": channel.chat_id, "text": text}
    api.call("/chat.postMessage", {**payload, "thread_ts": thread} if thread else payload)


THREADS: dict[str, Callable[[Api, Channel, str], str]] = {
    "telegram": telegram_thread, "discord": discord_thread, "slack": slack_thread,
}  # fmt: skip
SENDERS: dict[str, Callable[[Api, Channel, str | None, str], None]] = {
    "telegram": telegram_send, "discord": discord_send, "slack": slack_send,
}  # fmt: skip


def _number(value: str) -> int | str:
    return int(value) if re.fullmatch(r"-?\d+", value, re.ASCII) else value


def _id(api: Api, value: Any) -> str:
    if not isinstance(value, str | int) or not str(value):
        raise Failed(f"{api.platform}: the answer names no id")
    return str(value)


def pieces(text: str, limit: int) -> Iterator[str]:
    """A text in pieces of at most `limit` UTF-16 units (what Telegram counts; for the others that
    is on the safe side), cut at a line's end or a space where there is one in the second half.
    """
    while text:
        size = end = 0
        for end, letter in enumerate(text, 1):
            size += 1 if ord(letter) < 0x10000 else 2
            if size > limit:
                end -= 1
                break
        if end == len(text):
            yield text
            return
        for mark in ("\n", " "):
            cut = text.rfind(mark, end // 2, end)
            if cut > 0:
                end = cut
                break
        yield text[:end]
        text = text[end:].lstrip("\n ")


def apprise_url(channel: Channel, env: Mapping[str, str]) -> str | None:
    """The apprise URL of a platform from the agent's own variables; None where they do not
    suffice.
    """

    def get(name: str) -> str:
        return quote(env.get(name, ""), safe="")

    to = quote(channel.chat_id, safe="")
    if channel.platform == "email" and get("EMAIL_SMTP_HOST"):
        address = env.get("EMAIL_ADDRESS", "")
        port = env.get("EMAIL_SMTP_PORT") or "587"
        secure = "ssl" if port == "465" else "starttls"
        return (
            f"mailtos://{get('EMAIL_ADDRESS')}:{get('EMAIL_PASSWORD')}"
            f"@{env['EMAIL_SMTP_HOST']}:{quote(port)}/?smtp={get('EMAIL_SMTP_HOST')}"
            f"&mode={secure}&from={quote(address, safe='')}&to={to}"
        )
    if channel.platform == "matrix" and env.get("MATRIX_HOMESERVER"):
        scheme, host = _host("matrix", env["MATRIX_HOMESERVER"])
        end = f"@{host}/{to}?mode=off&hsreq=no"  # room ids of today name no server
        if get("MATRIX_ACCESS_TOKEN"):
            return f"{scheme}://{get('MATRIX_ACCESS_TOKEN')}{end}"
        user, password = get("MATRIX_USER_ID"), get("MATRIX_PASSWORD")
        return f"{scheme}://{user}:{password}{end}" if user and password else None
    if channel.platform == "mattermost" and env.get("MATTERMOST_URL"):
        scheme, host = _host("mmost", env["MATTERMOST_URL"])
        return f"{scheme}://{host}/{get('MATTERMOST_TOKEN')}?mode=bot&to={to}"
    if channel.platform == "sms" and get("TWILIO_AUTH_TOKEN"):
        sid, token = get("TWILIO_ACCOUNT_SID"), get("TWILIO_AUTH_TOKEN")
        return f"twilio://{sid}:{token}@{get('TWILIO_PHONE_NUMBER')}/{to}"
    if channel.platform == "whatsapp_cloud":
        token, number = get("WHATSAPP_CLOUD_ACCESS_TOKEN"), get("WHATSAPP_CLOUD_PHONE_NUMBER_ID")
        return f"whatsapp://{token}@{number}/{to}"
    if channel.platform == "homeassistant" and env.get("HASS_URL"):
        scheme, host = _host("hassio", env["HASS_URL"])
        return f"{scheme}://{host}/{get('HASS_TOKEN')}"
    return None


def _host(scheme: str, url: str) -> tuple[str, str]:
    """(`matrixs`, `host:8448`) of `https://host:8448/`."""
    parts = urlsplit(url if "://" in url else f"https://{url}")
    return scheme + ("s" if parts.scheme == "https" else ""), parts.netloc
