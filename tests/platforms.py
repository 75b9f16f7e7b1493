"""A stand-in for the HTTP interfaces of Telegram, Discord and Slack, on the loopback."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, Any], dict[str, str]]

TOKENS = {
    "telegram": "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw",
    "discord": "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs",
    "slack": "xoxb-not-a-real-token-but-as-long-as-one",
}


@dataclass
class Request:
    """What came in."""

    method: str
    path: str
    headers: dict[str, str]
    payload: dict[str, Any]


@dataclass
class Platform:
    """The server: `requests` so far; `script` answers before the rules of the platform do."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    script: list[Answer | Callable[[Request], Answer | None]] = field(default_factory=list)

    @property
    def calls(self) -> list[str]:
        """The last part of each path."""
        return [one.path.rpartition("/")[2] for one in self.requests]


def telegram(request: Request) -> Answer:
    """As the Bot API answers; 400 where a required field is missing or of the wrong type."""
    _, bot, method = request.path.split("/")
    if bot != f"bot{TOKENS['telegram']}":
        return 401, {"ok": False, "error_code": 401, "description": "Unauthorized"}, {}
    sent = request.payload
    if not isinstance(sent.get("chat_id"), int | str):
        return bad("Bad Request: chat_id is empty")
    if method == "createForumTopic":
        if not isinstance(sent.get("name"), str) or not 1 <= len(sent["name"]) <= 128:
            return bad("Bad Request: invalid topic name")
        if set(sent) - {"chat_id", "name", "icon_color", "icon_custom_emoji_id"}:
            return bad("Bad Request: unknown field")
        return 200, {"ok": True, "result": {"message_thread_id": 77, "name": sent["name"]}}, {}
    if method == "sendMessage":
        text = sent.get("text")
        if not isinstance(text, str) or not text.strip():
            return bad("Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > 4096:
            return bad("Bad Request: message is too long")
        if not isinstance(sent.get("message_thread_id", 0), int):
            return bad("Bad Request: message_thread_id")
        return 200, {"ok": True, "result": {"message_id": len(text)}}, {}
    return 404, {"ok": False, "error_code": 404, "description": "Not Found"}, {}


def bad(words: str) -> Answer:
    """Telegram's way to say 400."""
    return 400, {"ok": False, "error_code": 400, "description": words}, {}


def discord(request: Request) -> Answer:
    """As Discord's version 10 answers."""
    if request.headers.get("authorization") != f"Bot {TOKENS['discord']}":
        return 401, {"message": "401: Unauthorized", "code": 0}, {}
    parts, sent = request.path.strip("/").split("/"), request.payload
    if parts[-1] == "threads":
        if not isinstance(sent.get("name"), str) or not 1 <= len(sent["name"]) <= 100:
            return 400, {"message": "Invalid Form Body", "code": 50035}, {}
        if sent.get("auto_archive_duration") != 1440:
            return 400, {"message": "auto_archive_duration", "code": 50035}, {}
        if "messages" not in parts and sent.get("type") != 11:
            return 400, {"message": "type", "code": 50035}, {}
        return 201, {"id": "9001", "type": 11, "parent_id": parts[1]}, {}
    if parts[-1] == "messages":
        if not isinstance(sent.get("content"), str) or not 1 <= len(sent["content"]) <= 2000:
            return 400, {"message": "Invalid Form Body", "code": 50035}, {}
        if sent.get("allowed_mentions") != {"parse": []}:
            return 400, {"message": "this would ring somebody's bell", "code": 1}, {}
        return 200, {"id": "5005", "channel_id": parts[1]}, {}
    return 404, {"message": "404: Not Found", "code": 0}, {}


def slack(request: Request) -> Answer:
    """As Slack's Web API answers: refusals come with status 200."""
    if request.headers.get("authorization") != f"Bearer {TOKENS['slack']}":
        return 200, {"ok": False, "error": "invalid_auth"}, {}
    if request.path != "/chat.postMessage":
        return 200, {"ok": False, "error": "unknown_method"}, {}
    if not request.headers.get("content-type", "").startswith("application/json"):
        return 200, {"ok": False, "error": "invalid_form_data"}, {}
    sent = request.payload
    if not sent.get("channel") or not sent.get("text"):
        return 200, {"ok": False, "error": "no_text"}, {}
    if "thread_ts" in sent and sent["thread_ts"] != "1718.000100":
        return 200, {"ok": False, "error": "thread_not_found"}, {}
    return 200, {"ok": True, "ts": "1718.000100", "channel": sent["channel"]}, {}


RULES = {"telegram": telegram, "discord": discord, "slack": slack}


@contextmanager
def serving(name: str | Callable[[Request], Answer]) -> Iterator[Platform]:
    """One platform on a port of its own."""
    platform = Platform()
    rules = RULES[name] if isinstance(name, str) else name

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                payload = json.loads(body)
            except ValueError:
                payload = {"": body.decode("utf-8", "replace")}
            headers = {key.lower(): value for key, value in self.headers.items()}
            request = Request(self.command, self.path, headers, payload)
            platform.requests.append(request)
            answer: Answer | None = None
            if platform.script:
                first = platform.script.pop(0)
                answer = first(request) if callable(first) else first
            status, said, more = answer or rules(request)
            data = json.dumps(said).encode()
            self.send_response(status)
            for key, value in {"Content-Type": "application/json", **more}.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_PUT = do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    platform.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield platform
    finally:
        server.shutdown()
        server.server_close()
