"""Secrets in records: found by rules, replaced by a word that says what stood there.

The rules are those of the detect-secrets library that name a shape (not its guesses by entropy:
ids, digests and pictures would fall to them), and our own for what the agent talks to. No rule
finds every secret.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hermes_tools.store.errors import Unsupported

# kind → what the secret looks like; a group, if there is one, is the secret itself. The word
# before it must be in the text, which is cheaper to ask than the pattern.
OWN: tuple[tuple[str, str, str], ...] = (
    ("private-key", "PRIVATE KEY",
     r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----.*?"
     r"(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)"),
    ("private-key", "PuTTY-User-Key-File",
     r"PuTTY-User-Key-File-\d.*?(?:Private-MAC: *[0-9a-f]+|\Z)"),
    ("private-key", "AGE-SECRET-KEY", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    ("jwt", "eyJ", r"\beyJ[\w-]{8,}\.eyJ[\w-]{4,}\.[\w-]*"),
    ("url-password", "://", r"[a-z][\w+.-]*://[^\s/:@?#\"']*:([^\s/@?#\"']+)@"),
    ("openrouter-key", "sk-or-", r"\bsk-or-[\w-]{16,}"),
    ("anthropic-key", "sk-ant-", r"\bsk-ant-[\w-]{16,}"),
    ("openai-key", "sk-", r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9][\w-]{18,}"),
    ("google-key", "AIza", r"\bAIza[\w-]{30,}"),
    ("google-token", "ya29.", r"\bya29\.[\w.-]{16,}"),
    ("google-token", "1//0", r"(?<![\w/])1//0[\w-]{20,}"),
    ("google-secret", "GOCSPX-", r"\bGOCSPX-[\w-]{16,}"),
    ("xai-key", "xai-", r"\bxai-\w{20,}"),
    ("groq-key", "gsk_", r"\bgsk_\w{20,}"),
    ("cerebras-key", "csk-", r"\bcsk-\w{20,}"),
    ("perplexity-key", "pplx-", r"\bpplx-\w{20,}"),
    ("huggingface-token", "hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    ("replicate-token", "r8_", r"\br8_\w{20,}"),
    ("fireworks-key", "fw_", r"\bfw_[A-Za-z0-9]{16,}"),
    ("nvidia-key", "nvapi-", r"\bnvapi-[\w-]{20,}"),
    ("tavily-key", "tvly-", r"\btvly-[\w-]{12,}"),
    ("firecrawl-key", "fc-", r"\bfc-[0-9a-f]{16,}\b"),
    ("browserbase-key", "bb_live_", r"\bbb_live_[\w-]{12,}"),
    ("elevenlabs-key", "sk_", r"\bsk_[0-9a-f]{40,}\b"),
    ("daytona-key", "dtn_", r"\bdtn_[0-9a-f]{20,}"),
    ("aws-key", "ASIA", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("github-token", "github_pat_", r"\bgithub_pat_\w{20,}"),
    ("github-token", "gh", r"\bgh[pousr]_\w{20,}"),
    ("slack-token", "xapp-", r"\bxapp-[\w-]{16,}"),
    ("slack-token", "xox", r"\bxox[a-z](?:\.xox[a-z])?-[\w.%-]{12,}"),
    ("slack-webhook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/([\w/]{16,})"),
    ("discord-webhook", "/api/webhooks/", r"/api/webhooks/\d+/([\w-]{30,})"),
    ("telegram-token", ":", r"(?<!\d)\d{8,10}:[\w-]{35}(?![\w-])"),
    ("matrix-token", "syt_", r"\bsyt_[A-Za-z0-9+/=_]{16,}"),
    ("notion-token", "ntn_", r"\bntn_\w{20,}"),
    ("notion-token", "secret_", r"\bsecret_[A-Za-z0-9]{40,}"),
    ("linear-key", "lin_api_", r"\blin_api_\w{20,}"),
    ("stripe-key", "_live_", r"\b[rs]k_live_\w{16,}"),
    ("stripe-key", "whsec_", r"\bwhsec_[A-Za-z0-9+/=]{16,}"),
    ("npm-token", "npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
    ("pypi-token", "pypi-", r"\bpypi-[\w-]{40,}"),
    ("sendgrid-key", "SG.", r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    ("vault-token", "hv", r"\bhv[sbr]\.[\w-]{20,}"),
)  # fmt: skip

# A password, in the languages people chat in.
PASSWORD = (
    r"(?:passw(?:or)?[dt]e?|passphrase|passwd|\bpwd|kennwort|mot de passe|contraseña|\bsenha"
    r"|hasło|heslo|пароль|密码|密碼|口令|パスワード|비밀번호|암호)"
)

# Secrets that only the word beside them gives away.
BESIDE: tuple[tuple[str, str], ...] = (
    ("authorization", r"\b(?:bearer|basic)\s+(?=\S*[\d=_])([\w.~+/=-]{12,})"),
    ("authorization", r"\bauthorization\\?[\"']?\s*[:=]\s*\\?[\"']?(?:\w+\s+)?([^\s\"'\\,;]{8,})"),
    ("cookie", r"\b(?:set-)?cookie\\?[\"']?\s*:\s*\\?[\"']?([^\r\n\"'\\]{4,})"),
    ("token-in-url",
     r"[?&](?:api_?key|key|token|access_token|refresh_token|auth|sig|signature|secret|password|pwd"
     r"|x-amz-signature|x-amz-security-token)=([^&\s#\"'\\<>)]{6,})"),
    ("password", PASSWORD + r"\\?[\"'»」]?\s*(?:[:：]|=>?)\s*\\?[\"'«「]?"
     r"([^\s\"'\\,;<>{}\[\]()]{4,})"),
    ("password", PASSWORD + r"\s+(?:is|ist|es|est|é)\s+[\"'«]?"
     r"(?=\S*[\d!@#$%^&*_+=])([^\s\"'\\,;<>{}\[\]()]{4,})"),
    ("password", r"\bsshpass\s+-p\s*[\"']?([^\s\"']{3,})"),
    ("password", r"\bcurl\b[^\n|;]*?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']+:([^\s\"']{3,})"),
    ("secret",
     r"(?:secret|token|api[_-]?key|access[_-]?key|private[_-]?key|client[_-]?secret|credential)s?"
     r"\\?[\"']?\s*(?::|=>?)\s*\\?[\"']?(?=\S*\d)([A-Za-z0-9_./+=~:-]{12,})"),
)  # fmt: skip

# Keys of an object whose whole value is a secret, whatever it looks like.
SECRET_KEY = re.compile(
    r"(?:^|[_.-])(?:password|passwd|passphrase|pwd|secret|api_?key|access_?key|secret_?key"
    r"|private_?key|client_?secret|(?:access|refresh|auth|bot|id|session|bearer)_?token|token"
    r"|authorization|cookies?|set_cookie|credentials?)$",
    re.I,
)
MARK = re.compile(r"\[redacted:[a-z0-9-]+\]")
# The bytes of a picture are no text, and long.
DATA_URL = re.compile(r"data:[\w/+.-]*;base64,[A-Za-z0-9+/=]+")
SENTINEL = "\x00json:"
# A word that is no secret although it stands where one would.
HARMLESS = re.compile(
    r"[\d.,:]+$|\$\{?\w|%\w+%|<|\*+$|x{4,}$|\.{3}|(?:true|false|null|none|undefined|required|optional|string"
    r"|str|int|your|changeme|example|self|os\.|env|process\.|config|settings)\b",
    re.I,
)
# Library detectors we leave out: guesses, addresses, and those our own rules cut more exactly.
SKIPPED = {"Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector", "IPPublicDetector",
           "PrivateKeyDetector", "BasicAuthDetector", "JwtTokenDetector", "ArtifactoryDetector",
           "MailchimpDetector", "TwilioKeyDetector", "TelegramBotTokenDetector"}  # fmt: skip
# Of those, the shapes that are exact enough with a boundary on either side.
EXACT = (
    ("artifactory-key", "AKC", r"\bAKC[a-zA-Z0-9]{40,}\b"),
    ("mailchimp-key", "-us", r"\b[0-9a-f]{32}-us\d{1,2}\b"),
    ("twilio-key", "SK", r"\bSK[0-9a-f]{32}\b"),
    ("twilio-key", "AC", r"\bAC[0-9a-f]{32}\b"),
)

# Kind, a word that must be in the text, the pattern, and how long a group must be to be the
# secret itself (some of the library's groups hold no more than a prefix).
Rule = tuple[str, str, "re.Pattern[str]", int]


class Redactor:
    """Replaces secrets in records, and counts them by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.rules = [*own_rules(), *library_rules()]
        self.beside = [(kind, re.compile(pattern, re.I)) for kind, pattern in BESIDE]

    def clean(self, value: Any) -> Any:
        """Any JSON value without the secrets the rules find; itself where there are none."""
        return self._value(value, "")

    def _value(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return self._string(value, key)
        if isinstance(value, list):
            items = [self._value(item, key) for item in value]
            return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
        if isinstance(value, dict):
            return self._object(value, key)
        return value

    def _object(self, value: dict[str, Any], key: str) -> dict[str, Any]:
        """An object by its keys. Headers and cookies may come as {"name": …, "value": …}; below
        a secret key (cookies: {…}) every value is one.
        """
        pair = value.get("name", value.get("key"))
        made: dict[str, Any] = {}
        for name, item in value.items():
            shown = self.text(name)
            while shown != name and shown in made:
                shown += "'"
            if name == "_raw" and isinstance(item, dict):
                made[shown] = {column: self._raw(cell) for column, cell in item.items()}
            elif name == "value" and isinstance(pair, str):
                made[shown] = self._value(item, key if SECRET_KEY.search(key) else pair)
            elif SECRET_KEY.search(key) and not isinstance(pair, str):
                made[shown] = self._value(item, key)
            else:
                made[shown] = self._value(item, name)
        same = made.keys() == value.keys() and all(made[name] is value[name] for name in value)
        return value if same else made

    def _raw(self, cell: Any) -> Any:
        """Base64 of bytes that were no valid text; they may hold a secret all the same."""
        try:
            data = base64.b64decode(cell, validate=True).decode("latin-1")
        except (ValueError, TypeError):
            return self._value(cell, "")
        clean = self.text(data)
        return cell if clean is data else base64.b64encode(clean.encode("latin-1")).decode()

    def _string(self, value: str, key: str) -> str:
        if SECRET_KEY.search(key) and len(value) >= 4 and not spared(value):
            kind = "cookie" if "ookie" in key else "password" if "pass" in key else "secret"
            return self._hit(kind)
        # JSON inside a string (tool arguments, structured content): by its own keys and values.
        prefix = SENTINEL if value.startswith(SENTINEL) else ""
        body = value[len(prefix) :]
        if body[:1] in "{[" and len(body) > 8:
            try:
                inner = json.loads(body)
            except (ValueError, RecursionError):
                inner = None
            if isinstance(inner, dict | list):
                clean = self._value(inner, "")
                if clean is not inner:
                    tight = '":"' in body or '","' in body
                    body = json.dumps(
                        clean, ensure_ascii=body.isascii(),
                        separators=(",", ":") if tight else None,
                    )  # fmt: skip
                    value = prefix + body
        return self.text(value)

    def _hit(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"[redacted:{kind}]"

    def text(self, text: str) -> str:
        """Text without the secrets the rules find; itself where there are none."""
        if len(text) < 8:
            return text
        if "data:" in text and DATA_URL.search(text):
            parts, at = [], 0
            for found in DATA_URL.finditer(text):
                parts += [self._plain(text[at : found.start()]), found[0]]
                at = found.end()
            clean = "".join([*parts, self._plain(text[at:])])
            return text if clean == text else clean
        return self._plain(text)

    def _plain(self, text: str) -> str:
        for kind, word, pattern, least in self.rules:
            if word in text:
                text = self._replace(text, kind, pattern, least)
        for kind, pattern in self.beside:
            text = self._replace(text, kind, pattern, 1, spared)
        return text

    def _replace(
        self, text: str, kind: str, pattern: "re.Pattern[str]", least: int,
        spare: Callable[[str], bool] = lambda secret: False,
    ) -> str:  # fmt: skip
        parts: list[str] = []
        at = 0
        for found in pattern.finditer(text):
            group = secret_group(found, least)
            begin, end = found.span(group)
            secret = found[group]
            if begin < at or "[redacted:" in secret or spare(secret):
                continue
            parts += [text[at:begin], self._hit(kind)]
            at = end
        return "".join([*parts, text[at:]]) if parts else text


def spared(value: str) -> bool:
    """Whether a word stands where a secret would, and is none: a variable, a blank to fill in."""
    return HARMLESS.match(value) is not None or MARK.search(value) is not None


def secret_group(found: "re.Match[str]", least: int) -> int:
    """Which group of a match is the secret: the longest, if it is long enough; else all of it."""
    groups = [(len(value or ""), number) for number, value in enumerate(found.groups(), 1)]
    length, number = max(groups, default=(0, 0))
    return number if length >= least else 0


def own_rules() -> Iterator[Rule]:
    """Our rules, compiled."""
    for kind, word, pattern in (*OWN, *EXACT):
        yield kind, word, re.compile(pattern, re.S), 1


def library_rules() -> Iterator[Rule]:
    """The shapes detect-secrets knows. Raises Unsupported where it is not installed: fewer rules
    than promised must not pass unnoticed.
    """
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    except ImportError as error:
        raise Unsupported(
            "the library detect-secrets is not installed; pip install 'hermes-tools[redact]'"
        ) from error
    detectors: Iterable[Any] = get_mapping_from_secret_type_to_class().values()
    for detector in sorted(detectors, key=lambda one: str(one.__name__)):
        if detector.__name__ in SKIPPED:
            continue
        name = detector.__name__.removesuffix("Detector")
        kind = "-".join(re.findall(r"[A-Z][a-z]+|[A-Z]+(?![a-z])", name)).lower() or "secret"
        for pattern in getattr(detector, "denylist", None) or ():
            yield kind, "", pattern, 12
