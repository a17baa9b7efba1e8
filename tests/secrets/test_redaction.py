"""Secrets are masked before the first write, and what is no secret stays as it was (D10, reliability: secrets)."""

from __future__ import annotations

import base64
import copy
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ormsgpack import Ext, packb

import lastgood
from lastgood.codec.decode import Redacted, decode
from lastgood.codec.encode import encode, encode_strictly
from lastgood.codec.redact import MAX_LISTED, redact_state
from lastgood.errors import IntegrityError, InvalidError
from lastgood.secrets.redaction import MASK, Redaction, parse_paths

DEFAULT = Redaction()
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
KEY_LINES = "MIIEpAIBAAKCAQEA7Zq3\nb5Xn0Kd+/abcdEFGH12=="
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"

# --- text -------------------------------------------------------------------------------------------------

TOKENS = [
    "sk-abcdefghijklmnopqrst1234567890ABCDEFGHIJKLMNOPQR",
    "sk-ant-api03-" + "aB3_-" * 18,
    "sk-proj-" + "aB3_-" * 10,
    "sk_live_" + "4eC39HqLyjWDarjtT1",
    "AKIAIOSFODNN7EXAMPLE",
    "ASIA0123456789ABCDEF",
    "ghp_" + "aB3d" * 9,
    "gho_" + "aB3d" * 9,
    "ghs_" + "aB3d" * 9,
    "github_pat_" + "11ABCDEFG0_" * 4,
    "glpat-" + "aB3d_" * 4,
    "xoxb-123456789012-abcdefABCDEF",
    "AIza" + "aB3_-" * 7,
    "npm_" + "aB3d" * 9,
    "pypi-AgEIcHlwaS5vcmc" + "aB3_-" * 8,
    "hf_" + "aBcDe" * 7,
    "gsk_" + "aB3d" * 13,
    "SG." + "aB3_-" * 4 + "." + "aB3_-" * 8,
    JWT,
]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "found {} in the log",
        "({})",
        '"{}"',
        "x={},",
        "line\\n{}\\n",
        "\x1b[31m{}\x1b[0m",
        "q=%22{}%22",
        "a\n{}\nb",
    ],
)
def test_tokens_are_known_by_their_shape_wherever_they_stand(token: str, around: str) -> None:
    """D10"""
    assert DEFAULT.text(around.format(token)) == around.format(MASK)


MASKED = [
    ("Authorization: Bearer abc", "Authorization: Bearer [redacted]"),
    ('curl -H "Authorization: token abc def" url', 'curl -H "Authorization: token [redacted]" url'),
    ("Cookie: a=b; c=d\nHost: x", "Cookie: [redacted]\nHost: x"),
    ("sent Bearer abc123def456.", "sent Bearer [redacted]"),
    ("sent basic dXNlcjpwYXNz now", "sent basic [redacted] now"),
    ("postgresql://app:hunter2@db:5432/x", "postgresql://app:[redacted]@db:5432/x"),
    ("redis://:p@ss@host/0", "redis://:[redacted]@host/0"),
    ("clone https://0123456789abcdef0123@git.example.org/x.git", "clone https://[redacted]@git.example.org/x.git"),
    ("HTTP://aVeryLongTokenWithout-1@host", "HTTP://[redacted]@host"),
    ("password=hunter2", "password=[redacted]"),
    ("DB_PASSWORD=p(a)ss!word end", "DB_PASSWORD=[redacted] end"),
    ("password: hunter2", "password: [redacted]"),
    ("password = 123456", "password = [redacted]"),
    ("aws_secret_access_key = wJalr/K7MDENG+bPx", "aws_secret_access_key = [redacted]"),
    ("export OPENAI_API_KEY='a b'", "export OPENAI_API_KEY='[redacted]'"),
    ('{"apiKey": "a\\"b", "n": 1}', '{"apiKey": "[redacted]", "n": 1}'),
    (r'"{\"client_secret\": \"abc\"}"', r'"{\"client_secret\": \"[redacted]\"}"'),
    ("{'access-token': 'abc'}", "{'access-token': '[redacted]'}"),
    ('os.environ["GITHUB_TOKEN"] = "abc"', 'os.environ["GITHUB_TOKEN"] = "[redacted]"'),
    ("mysql --password hunter2 -h x", "mysql --password [redacted] -h x"),
    ("deploy --api-key=abc --dry-run", "deploy --api-key=[redacted] --dry-run"),
    ("['deploy', '--auth-token', 'abc']", "['deploy', '--auth-token', '[redacted]']"),
    ("https://x/?access_token=abc&page=2", "https://x/?access_token=[redacted]&page=2"),
    ("UID=sa;PWD=abc;Server=x", "UID=sa;PWD=[redacted];Server=x"),
    ("MYSQL_PWD=abc", "MYSQL_PWD=[redacted]"),
    ('password="cut off here', 'password="[redacted]'),
    ("(token=abc)", "(token=[redacted])"),
    ("İ password=hunter2", "İ password=[redacted]"),
    (
        f"a\n-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINES}\n-----END RSA PRIVATE KEY-----\nb",
        "a\n-----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY-----\nb",
    ),
    (f"{KEY_LINES}\n-----END PRIVATE KEY-----\nb", "[redacted]-----END PRIVATE KEY-----\nb"),
    (f"a\n-----BEGIN PRIVATE KEY-----\n{KEY_LINES}", "a\n-----BEGIN PRIVATE KEY-----[redacted]"),
]


@pytest.mark.parametrize(("text", "masked"), MASKED)
def test_values_behind_telling_names_are_masked_and_nothing_else(text: str, masked: str) -> None:
    """D10"""
    assert DEFAULT.text(text) == masked


NO_SECRETS = [
    *("", "a sentence without any", "All 35 tests passed: 0 failed", HEX, f"sha256:{HEX}", HEX[:40], f"digest={HEX}"),
    *("550e8400-e29b-41d4-a716-446655440000", "task-550e8400-e29b-41d4-a716-446655440000", "/usr/lib/python3/x.py"),
    *("token_count: 123", '"max_tokens": 4096', "tokens=17", "cost_per_token: 0.5x", "token: 42", "tokenizer: fast"),
    *("next_page_token=abc", "eos_token: </s>", "SyntaxError: Unexpected token: foo", "Token::Ident(x)"),
    *("primary_key=id", "key=value", "monkey: banana", "sort_key: name", "public_key: abc", "cache-key=abc"),
    *("PWD=/home/someone", "password: str", "password: Optional[str] = None", "token = get_token()", "secret=None"),
    *("token=token", "self.token = args.token", "api_key=os.environ['X']", "password=$DB_PASSWORD", "token: ${TOKEN}"),
    *('"token": {"id": 5}', "passwordless: true", "secret_name: db", "password_file=/run/x", "session_id=abc"),
    *(
        "sk-learn-based-classification-models",
        "the risk-assessment-of-2024-and-the-years-after",
        "Basic authentication",
    ),
    *("bearer authentication scheme", "https://example.org:8080/a@b", "https://some.person.of.ours@host/"),
    *("https://ada7@host/", "https://example.org/0123456789abcdef0123@b"),
    *("git+ssh://git@host:me/x.git", "mail a@b.org"),
    *("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "--token --verbose", "eyJust.a.word", "AKIA"),
    *("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ me@host", "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA"),
]


@pytest.mark.parametrize("text", NO_SECRETS)
def test_what_is_no_secret_stays_the_same_object(text: str) -> None:
    """A mask in the wrong place destroys evidence."""
    assert DEFAULT.text(text) is text
    plain = {"a": [text, ("x", text)], "b": {"c": text}}
    assert DEFAULT.plain(plain) is plain


FRAGMENTS = [
    *(text for text, _ in MASKED),
    *TOKENS,
    *NO_SECRETS,
    *("password", "token", "--token", "Authorization", "cookie", "api_key", "Bearer", "basic", "://", "@", MASK),
    *("=", ":", " ", "\n", '"', "'", "\\", "\\n", ",", ";", "&", "[", "]", "(", "{", "-", "-----", "$", "sk-", "eyJ"),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "abc", "1"),
]
messy_texts = st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join))
plain_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | messy_texts,
    lambda inner: st.lists(inner) | st.dictionaries(messy_texts, inner),
    max_leaves=12,
)


@given(messy_texts)
@example("password=[redacted]]")
@example("token=[redacted]abc")
def test_masking_twice_changes_nothing(text: str) -> None:
    once = DEFAULT.text(text)
    assert DEFAULT.text(once) == once


@given(plain_data)
@example({"a:PASSWORD": {"token:x": None}})
def test_plain_data_is_masked_once_and_never_changed_in_place(value: Any) -> None:
    before = copy.deepcopy(value)
    once = DEFAULT.plain(value)
    assert value == before
    assert DEFAULT.plain(once) == once
    assert once is value or once != value


HOSTILE_SHAPES = [
    *("a", "-", "\\", " ", "eyJ", "eyJ-", "eyJaaaaaaaa.", "[0meyJ0m", "sk-", "sk-a_", "AKIA", "xoxb-", "AIza-"),
    *("SG.aaaaaaaaaaaaaaaaaaaa", "glpat-aaaaaaaaaaaaaaaaaaaa.", "Bearer ", "basic "),
    *("://", "://a:", "://a:b@", "@", "https://1"),
    *("-----BEGIN ", "-----END PRIVATE KEY", "-----BEGIN PRIVATE KEY-----", "\nVersion:", "aaaa \n", "[31;31m", "%41"),
]
HOSTILE_NAMES = [
    *("password=", 'password="', 'password:"\\"', "password='\\", "token=abc(", "token=a.a.a.", "token ", "--token "),
    *("token\\", "pad_token", "secret: ", "authorization: ", "cookie ", "passwordpassword", "api_", "?sig", "$A", "["),
]


@pytest.mark.parametrize(("parts", "length"), [(HOSTILE_SHAPES, 250_000), (HOSTILE_NAMES, 150_000)])
def test_time_grows_with_the_length_of_a_text_and_not_faster(parts: list[str], length: int) -> None:
    """Hostile texts between the ends of secrets: seconds for all of them, minutes for one with a quadratic rule."""
    code = """
import json, sys
from lastgood.secrets.redaction import Redaction
redaction = Redaction()
for part in json.load(sys.stdin):
    body = part * (int(sys.argv[1]) // len(part))
    redaction.text(f"{body}-----END PRIVATE KEY:// bearer\\n-----BEGIN PRIVATE KEY-----{body} password={body}")
print("done")
"""
    command = [sys.executable, "-c", code, str(length)]
    done = subprocess.run(command, input=json.dumps(parts), capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "done\n", done.stderr


# --- plain data -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("password", "PASSWORD", "db_password", "dbPassword", "Passwd", "passwords", "password2", "secret", "cookie"),
        *("client-secret", "token", "accessToken", "refresh_token", "GITHUB_TOKEN", "api_key", "apikey", "api_keys"),
        *("X-API-Key", "secret_access_key", "private_key", "Authorization", "Set-Cookie"),
    ],
)
def test_fields_are_known_by_their_names(name: str) -> None:
    assert DEFAULT.plain({name: "plain text", "other": 1}) == {name: MASK, "other": 1}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "token_count",
            "max_tokens",
            "tokens",
            "next_page_token",
            "eos_token",
            "cost_per_token",
            "key",
            "primary_key",
        ),
        *("public_key", "monkey", "session", "session_id", "secret_name", "password_policy", "author", "pwd"),
    ],
)
def test_fields_with_similar_names_are_left_alone(name: str) -> None:
    value = {name: "plain text"}
    assert DEFAULT.plain(value) is value


def test_numbers_behind_the_names_of_tokens_and_keys_count_something() -> None:
    value = {"token": 7, "api_key": 1.5, "password": None, "secret": True, "cookie": ""}
    assert DEFAULT.plain(value) is value
    assert DEFAULT.plain({"password": 123456, "secrets": [1, "a"]}) == {"password": MASK, "secrets": [MASK, MASK]}


def test_everything_in_a_secret_field_is_masked_and_its_form_is_kept() -> None:
    value = {"cookies": [{"name": "a", "value": "b"}], "token": ("a", {"x": "y", "n": 1})}
    masked = {"cookies": [{"name": MASK, "value": MASK}], "token": (MASK, {"x": MASK, "n": 1})}
    assert DEFAULT.plain(value) == masked


def test_command_lines_and_pairs_of_name_and_value_are_understood() -> None:
    value = {"argv": ["run", "--password", "abc", "--x", "y"], "env": [{"name": "API_KEY", "value": "abc"}]}
    masked = {"argv": ["run", "--password", MASK, "--x", "y"], "env": [{"name": "API_KEY", "value": MASK}]}
    assert DEFAULT.plain(value) == masked


def test_secrets_that_are_keys_are_masked_and_no_entry_is_lost() -> None:
    value = {TOKENS[0]: 1, TOKENS[4]: 2, "x": 3}
    assert DEFAULT.plain(value) == {MASK: 1, f"{MASK} (2)": 2, "x": 3}


def test_only_containers_on_the_way_are_copied() -> None:
    value = {"a": {"password": "x"}, "b": {"c": [1, 2]}}
    masked = DEFAULT.plain(value)
    assert masked == {"a": {"password": MASK}, "b": {"c": [1, 2]}}
    assert masked["b"] is value["b"]
    assert value["a"] == {"password": "x"}


def test_data_nested_beyond_reason_is_masked_rather_than_refused_or_let_through() -> None:
    value: Any = "password=canary-1234"
    for _ in range(5000):
        value = [value]
    assert "canary" not in repr(DEFAULT.plain(value))


@given(plain_data, st.sampled_from(["password", "api_key", "Authorization"]), st.data())
def test_a_planted_canary_never_survives_in_plain_data(value: Any, name: str, data: st.DataObject) -> None:
    """Reliability, secrets: behind a name, as a text of known shape, or in the middle of a text."""
    canary = "canary+" + "0123456789abcdef"
    token = "ghp_" + "C4n4ry" * 6
    planted = [value, {name: canary}, f"say {name}={canary}\n", f"see {token}", {token: 1}, [[f"--{name}", canary]]]
    order = data.draw(st.permutations(planted))
    masked = json.dumps(DEFAULT.plain(order))
    assert canary not in masked
    assert "C4n4ry" not in masked


# --- rules of one's own -----------------------------------------------------------------------------------


def test_patterns_mask_what_they_match_or_their_group_named_secret() -> None:
    redaction = Redaction(patterns=(r"CARD-\d+", r"pin (?P<secret>\d+)|otp"))
    assert redaction.text("CARD-123 pin 4567 otp") == f"{MASK} pin {MASK} {MASK}"
    assert redaction.plain({"a": ["CARD-1"]}) == {"a": [MASK]}


@pytest.mark.parametrize("pattern", [r".", r"\w+", r"x*", r"[a-z]+\]", r"(?i)RED", r"^a", r"redacted"])
@given(st.text("abredct[] x", max_size=30))
def test_patterns_leave_what_is_masked_as_it_is(pattern: str, text: str) -> None:
    once = Redaction(patterns=(pattern,), defaults=False).text(f"{MASK} {text}")
    assert once.startswith(MASK)


def test_keys_of_ones_own_hold_in_data_and_in_text() -> None:
    redaction = Redaction(keys=("Member-No", "pin"))
    value = {"member_no": "x", "PIN": 1234, "spin": "y", "member": "z"}
    assert redaction.plain(value) == {"member_no": MASK, "PIN": MASK, "spin": "y", "member": "z"}
    text = 'MEMBER_NO=5 --pin 1234 spin=y "member-no": "x y" password=z'
    assert redaction.text(text) == f'MEMBER_NO={MASK} --pin {MASK} spin=y "member-no": "{MASK}" password={MASK}'


def test_without_defaults_only_ones_own_rules_hold() -> None:
    redaction = Redaction(keys=("pin",), defaults=False)
    text = f"password=abc {TOKENS[0]}"
    assert redaction.text(text) is text
    assert redaction.plain({"password": "abc", "pin": "1"}) == {"password": "abc", "pin": MASK}
    assert Redaction(defaults=False).text(text) is text


@pytest.mark.parametrize(
    "rules",
    [{"patterns": ("(",)}, {"patterns": "abc"}, {"patterns": (b"a",)}, {"keys": ["pin"]}, {"keys": ("-",)}]
    + [{"state": (path,)} for path in ("", ".", "a.", ".a", "a..b", "a[", "a[]", "a[x]", "a[-1]", "a b", "a.[0]", "a]")]
    + [{"state": (path,)} for path in ('a["x]', 'a["\\x"]', "a**", "*a", "a*")]
    + [{"defaults": 1}],
)
def test_rules_that_cannot_be_applied_are_refused_when_they_are_made(rules: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        Redaction(**rules)


def test_rules_are_values() -> None:
    assert Redaction(keys=("a",)) == Redaction(keys=("a",)) != Redaction()
    assert hash(Redaction(state=("a.b",))) == hash(Redaction(state=("a.b",)))
    with pytest.raises(AttributeError):
        DEFAULT.keys = ("a",)  # type: ignore[misc]


def test_expressions_are_compiled_only_when_a_text_needs_them() -> None:
    code = (
        "import sys; from lastgood.secrets.redaction import Redaction; r = Redaction(); r.plain({}); "
        "r.text('a sentence'); print('lastgood.secrets.fields' in sys.modules, 'json' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


# --- state ------------------------------------------------------------------------------------------------


def redacted(state: Any, *rules: str) -> tuple[Any, tuple[str, ...]]:
    return redact_state(state, Redaction(state=rules).paths)


@pytest.mark.parametrize(
    ("rule", "state", "expected", "paths"),
    [
        ("a", {"a": 1, "b": 2}, {"a": Redacted(), "b": 2}, ("a",)),
        ("a.b", {"a": {"b": [1], "c": 2}}, {"a": {"b": Redacted(), "c": 2}}, ("a.b",)),
        ("m[*].h.A", {"m": [{"h": {"A": 1}}, {}, {"h": {"A": 2}}]}, None, ("m[0].h.A", "m[2].h.A")),
        ("u.*.p", {"u": {"x": {"p": 1}, "y": {"q": 1}}}, {"u": {"x": {"p": Redacted()}, "y": {"q": 1}}}, ("u.x.p",)),
        ("u.*.p", {"u": [{"p": 1}]}, {"u": [{"p": Redacted()}]}, ("u[0].p",)),
        ("a[1]", {"a": (1, 2)}, {"a": (1, Redacted())}, ("a[1]",)),
        ("a.1", {"a": [1, 2]}, {"a": [1, Redacted()]}, ("a[1]",)),
        ("a[1]", {"a": {1: 2, "1": 3}}, {"a": {1: Redacted(), "1": Redacted()}}, ("a.1", "a[1]")),
        ('["x.y"]["a b"]', {"x.y": {"a b": 1}}, {"x.y": {"a b": Redacted()}}, ('["x.y"]["a b"]',)),
        ("[0].a", [{"a": 1}], [{"a": Redacted()}], ("[0].a",)),
        ("*", {"a": 1, (1, 2): 3}, {"a": Redacted(), (1, 2): Redacted()}, ("a", "[*]")),
        ("a.b", {"a": "text"}, {"a": "text"}, ()),
        ("a[7].b", {"a": [1]}, {"a": [1]}, ()),
        ("a.b", {"a": Redacted()}, {"a": Redacted()}, ()),
        ("a", {"a": Redacted()}, {"a": Redacted()}, ("a",)),
        ("A", {"a": 1}, {"a": 1}, ()),
    ],
)
def test_state_is_redacted_by_path(rule: str, state: Any, expected: Any, paths: tuple[str, ...]) -> None:
    before = copy.deepcopy(state)
    result, found = redacted(state, rule)
    assert found == paths
    assert state == before
    if expected is not None:
        assert result == expected
    if result == state:
        assert result is state


def test_only_containers_on_the_way_to_something_redacted_are_copied() -> None:
    state: dict[str, Any] = {"a": {"b": 1, "c": [1]}, "d": [2]}
    result, _ = redacted(state, "a.b")
    assert result["d"] is state["d"]
    assert result["a"]["c"] is state["a"]["c"]
    assert list(result) == list(state)


def test_several_rules_hold_at_once_and_a_wider_one_covers_a_narrower_one() -> None:
    state = {"a": {"b": 1, "c": 2}, "d": [{"e": 3}]}
    result, paths = redacted(state, "a.*", "a.b", "d[*]", "d[0].e")
    assert result == {"a": {"b": Redacted(), "c": Redacted()}, "d": [Redacted()]}
    assert sorted(paths) == ["a.b", "a.c", "d[0]"]


def test_a_rule_that_matched_very_often_is_listed_as_it_is_written() -> None:
    state = {"m": [{"k": n} for n in range(MAX_LISTED + 1)], "n": [0] * MAX_LISTED, "o": {"x" * 300: 1}}
    result, paths = redacted(state, "m[*].k", "n[*]", "o.*")
    assert paths == ("m[*].k", *(f"n[{n}]" for n in range(MAX_LISTED)), "o.*")
    assert all(item == {"k": Redacted()} for item in result["m"])


@lastgood.register
@dataclass
class Account:
    name: str
    token: str


@pytest.mark.parametrize("rule", ["a.token", "a.*", "*.token", "s.*", "s[0]"])
def test_a_rule_into_an_object_or_a_set_is_refused_rather_than_let_a_secret_through(rule: str) -> None:
    with pytest.raises(InvalidError, match=r"^[as]: ") as caught:
        redacted({"a": Account("x", "canary"), "s": {"canary"}}, rule)
    assert "canary" not in f"{caught.value} {caught.value.hint} {caught.value.details}"


def test_an_object_may_be_redacted_whole_and_rules_that_miss_it_do_not_matter() -> None:
    state = {"a": Account("x", "y"), "b": {"c"}, "d": {"token": 1}}
    assert redacted(state, "a", "*.other", "b.c")[0] == {**state, "a": Redacted()}


def test_append_lists_are_redacted_by_building_new_ones() -> None:
    from lastgood.codec.append_list import AppendList

    messages = AppendList([{"token": "canary", "n": 1}, {"n": 2}, {"token": "canary"}])
    result, paths = redacted({"m": messages}, "m[*].token")
    assert paths == ("m[0].token", "m[2].token")
    assert type(result["m"]) is AppendList
    assert list(result["m"]) == [{"token": Redacted(), "n": 1}, {"n": 2}, {"token": Redacted()}]
    assert messages[0] == {"token": "canary", "n": 1}
    assert b"canary" not in encode(result)
    assert redacted({"m": messages}, "m[*].other", "m[9].token")[0]["m"] is messages


names = st.sampled_from(["a", "b", "c.d", "e f", "*", "ü", "0"])
states = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4) | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=15,
)


@given(st.lists(st.tuples(st.sampled_from(["list", "tuple", "dict"]), names, states), max_size=5), st.data())
def test_a_canary_at_the_end_of_a_rule_is_never_encoded(steps: list[tuple[str, str, Any]], data: st.DataObject) -> None:
    """Reliability, secrets: planted in any structure, under the exact path or one with wildcards in it."""
    state: Any = {"last": "canary-5c1f"}
    path = ".last"
    for kind, name, other in steps:
        wild = data.draw(st.booleans())
        state = {"list": [other, state], "tuple": (other, state), "dict": {"other": other, name: state}}[kind]
        step = f"[{json.dumps(name)}]" if kind == "dict" else "[1]"
        path = ("[*]" if wild else step) + path
    rule = path.removeprefix(".")
    before = encode(state)
    result, paths = redacted(state, rule)
    assert b"canary-5c1f" in before
    assert b"canary-5c1f" not in encode(result)
    assert encode(state) == before
    assert paths
    again, same_paths = redacted(result, *paths)
    assert again is result
    assert set(same_paths) == set(paths)


# --- the marker -------------------------------------------------------------------------------------------


def test_there_is_one_marker_and_it_is_false() -> None:
    assert Redacted() is Redacted()
    assert copy.deepcopy(Redacted()) is copy.copy(Redacted()) is Redacted()
    assert not Redacted()
    assert (repr(Redacted()), f"{Redacted()}") == ("<redacted>", "<redacted>")
    assert len({Redacted(), Redacted()}) == 1
    with pytest.raises(AttributeError):
        Redacted().value = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        type("Other", (Redacted,), {})


@pytest.mark.parametrize(
    "value", [Redacted(), [Redacted(), 1], {"a": (Redacted(),)}, {Redacted(): {Redacted()}}, [Redacted(), b"x"]]
)
def test_the_marker_is_stored_and_comes_back(value: Any) -> None:
    assert decode(encode(value)) == value
    assert encode(value) == encode_strictly(value)


def test_a_marker_with_content_is_damage() -> None:
    assert encode(Redacted()) == packb(Ext(16, b""))
    with pytest.raises(IntegrityError):
        decode(packb(Ext(16, b"\xc0")))


def test_a_redacted_state_can_be_saved_loaded_and_saved_again() -> None:
    state, paths = redacted({"credentials": {"token": "canary", "user": "x"}, "n": 1}, "credentials.token")
    with lastgood.open(":memory:") as store:
        task = store.task("t")
        task.save(state)
        loaded = task.state
        assert loaded["credentials"]["token"] is Redacted()
        task.save({**loaded, "n": 2})
        assert task.state == {"credentials": {"token": Redacted(), "user": "x"}, "n": 2}
    assert paths == ("credentials.token",)


def test_rules_and_paths_use_the_same_way_of_writing() -> None:
    state = {"a.b": [{"c": 1, 'q"uote': {"ü": 2}}], "\ud800": 3}
    _, paths = redacted(state, '["a.b"][*].*', '["\\ud800"]')
    assert parse_paths(paths)
    assert set(redacted(state, *paths)[1]) == set(paths)
    assert all(path.encode() for path in paths)


@pytest.mark.parametrize("pair", ["user:pass", "a:b1", "ünï:cödé-123"])
def test_basic_credentials_are_told_from_words_by_what_they_decode_to(pair: str) -> None:
    encoded = base64.b64encode(pair.encode()).decode()
    assert DEFAULT.text(f"Basic {encoded}") == f"Basic {MASK}"
    words = base64.b64encode(pair.replace(":", "-").encode()).decode()
    assert DEFAULT.text(f"Basic {words}") == f"Basic {words}"
