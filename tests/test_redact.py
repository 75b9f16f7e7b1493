"""hermes-session-redact: the filter, seen from outside."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_tools.store.redaction import Redactor

# None of these has ever been a key to anything.
H = "0123456789abcdef"
W = "q1W2e3R4t5Y6u7I8o9P0aZsXdCfVgB"
SECRETS = {
    "openrouter-key": f"sk-or-v1-{H * 4}",
    "anthropic-key": f"sk-ant-api03-{W}-{W}",
    "openai-key": f"sk-proj-{W}",
    "google-key": f"AIza{W}12345",
    "xai-key": f"xai-{W}",
    "groq-key": f"gsk_{W}",
    "huggingface-token": f"hf_{W}",
    "nvidia-key": f"nvapi-{W}",
    "tavily-key": f"tvly-{W}",
    "firecrawl-key": f"fc-{H}",
    "aws-key": "AKIA" + "Z7" * 8,
    "github-token": f"ghp_{W}123456",
    "git-lab-token": f"glpat-{W}",
    "slack-token": "xoxb-123456789012-123456789012-" + W[:24],
    "telegram-token": f"123456789:{W}ABCDE",
    "npm-token": f"npm_{W}123456",
    "send-grid": f"SG.{W[:22]}.{W}{W[:13]}",
    "stripe-key": f"sk_live_{W[:24]}",
    "jwt": f"eyJ{W}.eyJ{W}.{W}",
    "private-key": f"-----BEGIN EC PRIVATE KEY-----\n{W}\n{W}\n-----END EC PRIVATE KEY-----",
    "azure-storage-key": "AccountKey=" + (W * 3)[:86] + "==",
}  # fmt: skip


def clean(value: Any) -> Any:
    return Redactor().clean(value)


def redacted(run, *records: Any) -> tuple[list[Any], str]:
    result = run("redact", input=[*records]).ok()
    return [json.loads(line) for line in result.lines], result.stderr


@pytest.mark.parametrize("kind", SECRETS)
def test_b107_every_kind_in_every_string(kind: str, run) -> None:
    secret = SECRETS[kind]
    record = {
        "id": "20260225_101500_a1b2c3", "title": f"about {secret}", "system_prompt": secret,
        "origin_json": {"deep": [{"er": secret}]},
        "messages": [{
            "content": f"use {secret}, please", "reasoning": f"({secret})", "api_content": secret,
            "tool_calls": [{"function": {"arguments": json.dumps({"line": f"x {secret} y"})}}],
        }],
    }  # fmt: skip
    (seen,), words = redacted(run, record)
    assert secret not in json.dumps(seen) and secret[12:40] not in json.dumps(seen)
    assert seen["messages"][0]["content"].startswith("use [redacted:")
    assert seen["messages"][0]["content"].endswith("], please")
    assert seen["id"] == record["id"]
    arguments = seen["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments)["line"].startswith("x [redacted:")
    assert secret not in words and " 7" in words, "the report counts and does not quote"


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("https://user:Sommer2026@example.org/x", "Sommer2026"),
        ("postgres://app:s3cr3t@db/prod", "s3cr3t"),
        ("Authorization: Bearer abcdef123456ghijkl", "abcdef123456ghijkl"),
        ("-H 'authorization: token 0123456789abcdef'", "0123456789abcdef"),
        ("Cookie: sid=31d4d96e407aad42; theme=dark", "31d4d96e407aad42"),
        ("GET /v1?access_token=abc123def456&x=1", "abc123def456"),
        ("export FOO_API_KEY=abcd1234efgh5678", "abcd1234efgh5678"),
        ('{"client_secret": "abcd1234efgh5678"}', "abcd1234efgh5678"),
        ("my password is Tr0ub4dor&3, remember", "Tr0ub4dor&3"),
        ("password: correct-horse", "correct-horse"),
        ("Passwort: Geheim99!", "Geheim99!"),
        ("пароль: секрет123", "секрет123"),
        ("密码：hunter2hunter2", "hunter2hunter2"),
        ("curl -u user:Sommer2026 https://example.org", "Sommer2026"),
        ("sshpass -p 'Sommer2026' ssh host", "Sommer2026"),
        (f"https://hooks.slack.com/services/T00000000/B00000000/{W}", W),
        (r"-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----", "MIIabc"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc cut off", "MIIabc"),
    ],
)  # fmt: skip
def test_what_the_words_beside_give_away(text: str, gone: str) -> None:
    seen = clean({"content": text})["content"]
    assert gone not in seen and "[redacted:" in seen
    assert clean({"content": seen})["content"] == seen, "twice is as once"


@pytest.mark.parametrize(
    "text",
    [
        "20260225_101500_a1b2c3", "sk-learn and task-oriented-programming-in-anger",
        "the password is required", "password: ${DB_PASSWORD}", "token: <your token here>",
        "total_tokens: 123456789012345", "a basic understanding of bearer bonds",
        "https://example.org:8080/path@2x.png", "ask: what is a secret?", "tokens = 4096",
        "d6b1f0c0e3a94e2c8b1a7f5e9d3c2b1a0f9e8d7c6b5a49382716050403020100", "10:30:00 passed",
        "今天的备份任务失败了，需要重跑", "password=[redacted:password]", "",
    ],
)  # fmt: skip
def test_what_is_no_secret_passes_unchanged(text: str) -> None:
    record = {"content": text, "token_count": 17, "session_id": "cron_1_20260228_010000"}
    assert clean(record) is record


def test_values_of_secret_keys() -> None:
    record = {
        "config": {"password": "swordfish", "cookies": {"sid": "31d4d96e"}, "api_key": None},
        "headers": [{"name": "Authorization", "value": "opaque-word"}, {"name": "A", "value": "b"}],
        "arguments": '{"token": "swordfish", "n": 1}',
    }
    seen = clean(record)
    assert seen["config"] == {
        "password": "[redacted:password]", "cookies": {"sid": "[redacted:cookie]"}, "api_key": None,
    }  # fmt: skip
    assert seen["headers"][0]["value"] == "[redacted:secret]" and seen["headers"][1]["value"] == "b"
    assert json.loads(seen["arguments"]) == {"token": "[redacted:secret]", "n": 1}


def test_a_key_that_is_there_twice() -> None:
    """A parser keeps the second of two equal keys; the first is read as well."""
    text = f'{{"password": "Sommer2026", "password": "{W}", "x": "{SECRETS["groq-key"]}"}}'
    seen = clean({"arguments": text})["arguments"]
    assert "Sommer2026" not in seen and W not in seen


def test_structured_content_and_raw_bytes() -> None:
    secret = SECRETS["github-token"]
    picture = "data:image/png;base64," + "QUtJQVpaWlpaWlpaWlpaWlpaWlo" * 40
    raw = base64.b64encode(b"\xff\xfe key " + secret.encode()).decode()
    record = {
        "content": "\x00json:" + json.dumps([{"type": "text", "text": f"ключ {secret}"}]),
        "_raw": {"content": raw, "blob": base64.b64encode(bytes(range(128, 256))).decode()},
        "image": picture,
    }
    seen = clean(record)
    assert seen["content"].startswith("\x00json:[") and secret not in seen["content"]
    assert json.loads(seen["content"][6:])[0]["text"] == "ключ [redacted:github-token]"
    assert base64.b64decode(seen["_raw"]["content"]) == b"\xff\xfe key [redacted:github-token]"
    assert seen["_raw"]["blob"] == record["_raw"]["blob"]
    assert seen["image"] == picture


def test_lines_without_a_secret_pass_byte_for_byte(run) -> None:
    line = '{ "n": 123456789012345678901234567890, "f": 1.10, "u": "\\u00e9", "b":[ ] }'
    other = json.dumps({"content": SECRETS["jwt"], "n": 123456789012345678901234567890})
    result = run("redact", input=f"{line}\r\n\n{other}\n[1]\n").ok()
    assert result.lines[0] == line and result.lines[2] == "[1]"
    assert json.loads(result.lines[1]) == {
        "content": "[redacted:jwt]", "n": 123456789012345678901234567890,
    }  # fmt: skip
    assert result.stderr == "hermes-session-redact: 1 secret in 1 of 3 records: jwt 1\n"


def test_report_and_quiet(run) -> None:
    result = run("redact", "-q", input='{"a": "https://u:Sommer2026@h/"}\n').ok()
    assert not result.stdout and "url-password 1" in result.stderr
    nothing = run("redact", input='{"a": 1}\n').ok()
    assert "no secret that its rules know" in nothing.stderr, "never a claim that there is none"


def test_a_malformed_line(run) -> None:
    result = run("redact", input='{"a": 1}\n{"b": \n').gave(65)
    assert result.lines == ['{"a": 1}'] and "line 2" in result.stderr


def test_export_of_a_store_stays_what_import_takes(run, store) -> None:
    from scripts import need

    need("export")
    path = store("v22")
    plain = run("export", "--db", path).ok()
    seen = run("redact", input=plain.stdout).ok()
    assert len(seen.records) == len(plain.records)
    assert [one["id"] for one in seen.records] == [one["id"] for one in plain.records]


words = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


@given(value=st.dictionaries(st.text(max_size=8), words, max_size=5))
def test_shape_is_kept_and_twice_is_as_once(redactor: Redactor, value: dict[str, Any]) -> None:
    seen = redactor.clean(value)
    assert redactor.clean(seen) == seen

    def shape(one: Any) -> Any:
        if isinstance(one, dict):
            return [shape(item) for item in one.values()]
        if isinstance(one, list):
            return [shape(item) for item in one]
        return type(one)

    assert shape(seen) == shape(value)


@given(before=st.text(max_size=30), after=st.text(max_size=30), kind=st.sampled_from(list(SECRETS)))
def test_wherever_it_stands(redactor: Redactor, before: str, after: str, kind: str) -> None:
    """A secret is found between any words, as long as a space sets it off."""
    secret = SECRETS[kind]
    seen = redactor.clean({"content": f"{before} {secret} {after}"})["content"]
    assert secret not in seen
