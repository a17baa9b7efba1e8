"""What secrets look like in text, and how they are masked.

Here are shapes that nothing else has: a token with its issuer's prefix, a private key, the password or the token in a
URL (fields.py has values behind names of fields). Only what is certain is masked: hashes, UUIDs, paths and counts stay,
because a mask in the wrong place destroys evidence.

Every expression takes linear time. Where one can fail it has read a bounded number of characters, or at a run
in which no other attempt begins; quantifiers are possessive, so that nothing is tried twice.
"""

from __future__ import annotations

import re
from functools import cache

MASK = "[redacted]"

# Prefix, and what follows it. Prefixes are patterns of fixed width, because a lookbehind repeats them.
_SHAPES = (
    ("sk-", r"(?=[A-Za-z_-]{0,64}[0-9])[\w-]{20,}+"),
    ("[rs]k_(?:live|test)_", r"[A-Za-z0-9]{16,}+"),
    ("A[BCKS][CI]A", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("gh[oprsu]_", r"[A-Za-z0-9]{30,}+"),
    ("github_pat_", r"\w{22,}+"),
    ("gl(?:pat|ptt|cbt)-", r"[\w-]{20,}+(?:\.[\w-]++)*+"),
    ("gl[dr]t-", r"[\w-]{20,}+(?:\.[\w-]++)*+"),
    ("xox[a-z]-", r"[A-Za-z0-9-]{10,}+"),
    ("xapp-", r"[A-Za-z0-9-]{20,}+"),
    ("AIza", r"[\w-]{35,}+"),
    ("ya29[.]", r"[\w-]{20,}+"),
    ("GOCSPX-", r"[\w-]{20,}+"),
    ("npm_", r"[A-Za-z0-9]{36,}+"),
    ("pypi-Ag", r"[\w-]{32,}+"),
    ("hf_", r"[A-Za-z0-9]{30,}+"),
    ("r8_", r"[A-Za-z0-9]{30,}+"),
    ("gsk_", r"[A-Za-z0-9]{40,}+"),
    ("xai-", r"[A-Za-z0-9]{40,}+"),
    ("pplx-", r"[A-Za-z0-9]{32,}+"),
    ("lsv2_[ps][kt]_", r"\w{32,}+"),
    ("do[opr]_v1_", r"[0-9a-f]{64}"),
    ("dckr_pat_", r"[\w-]{20,}+"),
    ("hvs[.]", r"[\w-]{24,}+"),
    ("SG[.]", r"[\w-]{16,}+[.][\w-]{16,}+"),
    ("AGE-SECRET-KEY-1", r"[A-Z0-9]{50,}+"),
)
_SHAPE_HINTS = (
    *("sk-", "k_live_", "k_test_", "akia", "asia", "abia", "acca", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    *("github_pat_", "glpat-", "glptt-", "glcbt-", "gldt-", "glrt-", "xox", "xapp-", "aiza", "ya29.", "gocspx-"),
    *("npm_", "pypi-ag", "hf_", "r8_", "gsk_", "xai-", "pplx-", "lsv2_", "_v1_", "dckr_pat_", "hvs.", "sg.", "eyj"),
    *("age-secret-key-1", "bearer", "basic"),
)
_JWT = r"[\w-]{8,}+[.][\w-]{4,}+(?:[.][\w-]*+){1,3}+"
_BEARER = r"\b(?i:bearer)[ \t]{1,4}(?P<bearer>(?=[A-Za-z._~+/=-]{0,64}[0-9]|[A-Za-z._~+/=-]{24})[\w.~+/=-]{8,}+)"
_BASIC = r"\b(?i:basic)[ \t]{1,4}(?P<basic>[A-Za-z0-9+/]{6,}+={0,2}+)"

_URL = r"://[^\s/:@?#\"'<>]*+:(?P<secret>[^\s/?#\"'<>]+)@"
# A token in place of a user and a password; names of users are shorter, or have no digit.
_URL_USER = r"(?i:https?)://(?P<secret>(?=[^\s/:@?#\"'<>0-9]{0,64}[0-9])[^\s/:@?#\"'<>]{16,}+)@"
# A private key up to its end; without an end, as far as there are lines that look like one.
_KEY_BEGINS = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?P<secret>(?:[^-]|-(?!----))*+(?=-----END )"
    r"|(?:\s*+(?:Proc-Type|DEK-Info|Version|Comment):[^\n]*+)*+(?:\s*+[A-Za-z0-9+/=\\]{16,}+)*+"
    r"(?:\s*+[A-Za-z0-9+/=\\]++\Z)?+)"
)
_KEY_ENDS = "-----END [A-Z0-9 ]{0,40}PRIVATE KEY"

# A token begins where a word begins; also behind an escape of JSON, of a URL or of a coloured terminal, whose last
# character looks like a part of the word.
_EDGES = (r"\\[nrt]", r"\\u[0-9A-Fa-f]{4}", "%[0-9A-Fa-f]{2}", r"\[m", r"[\[;][0-9]m", r"[\[;][0-9]{2}m")

_DIGEST = re.compile("[0-9a-f]{64}")
_KEY_TEXT = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\\|>#\"' \t\r\n"


_compile = cache(re.compile)  # when it is needed: together these take milliseconds


@cache
def _shape() -> re.Pattern[str]:
    """Compile all shapes in one expression."""
    patterns = [_edged(prefix) + rest for prefix, rest in _SHAPES]
    # A JSON web token has no length to end at: it must not begin again inside of what was read.
    patterns.append(_edged("eyJ").replace("(?<![A-Za-z0-9]", "(?<![A-Za-z0-9_-]") + _JWT)
    return re.compile("|".join([*patterns, _BEARER, _BASIC]), re.ASCII)


def _edged(prefix: str) -> str:
    """Return a pattern for `prefix` where a word begins."""
    behind = "|".join(f"(?<={edge}{prefix})" for edge in _EDGES)
    return f"{prefix}(?:(?<![A-Za-z0-9]{prefix})|{behind})"


def mask_secrets(text: str, lowered: str) -> str:
    """Mask the secrets that are known by their shape. `lowered` is the text in lower case, or was before
    other secrets were masked."""
    if "private key" in lowered:
        text = mask_private_keys(text)
    if "://" in lowered:
        text = mask_pattern(_compile(_URL_USER), mask_pattern(_compile(_URL), text))
    if _may_hold_shapes(lowered):
        text = _shape().sub(_mask_shape, text)
    return text


def _may_hold_shapes(lowered: str) -> bool:
    return not _DIGEST.fullmatch(lowered) and any(map(lowered.__contains__, _SHAPE_HINTS))


def _mask_shape(match: re.Match[str]) -> str:
    whole = match[0]
    if (bearer := match["bearer"]) is not None:
        return whole[: -len(bearer)] + MASK
    if (basic := match["basic"]) is not None:
        return whole[: -len(basic)] + MASK if _is_user_and_password(basic) else whole
    return MASK


def _is_user_and_password(text: str) -> bool:
    from binascii import Error, a2b_base64

    try:
        return b":" in a2b_base64(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except Error:
        return False


def mask_private_keys(text: str) -> str:
    """Mask whole private keys, and what is left of one whose beginning or end was cut off."""
    text = mask_pattern(_compile(_KEY_BEGINS), text)
    parts, done = [], 0
    for match in _compile(_KEY_ENDS).finditer(text):
        before = text[done : match.start()]
        kept = before.rstrip(_KEY_TEXT)
        parts += [kept + MASK if before[len(kept) :].strip() else before, match[0]]
        done = match.end()
    return "".join([*parts, text[done:]]) if parts else text


def mask_pattern(pattern: re.Pattern[str], text: str) -> str:
    """Mask what `pattern` matches, or of it the group `secret`; what is masked already stays as it is."""
    named = "secret" in pattern.groupindex
    parts, done = [], 0
    for match in pattern.finditer(text):
        start, end = match.span("secret") if named and match["secret"] is not None else match.span()
        if start < end and start >= done and not _is_masked(text, start, end):
            parts += [text[done:start], MASK]
            done = end
    return "".join([*parts, text[done:]]) if parts else text


def _is_masked(text: str, start: int, end: int) -> bool:
    if end - start > len(MASK):
        return False
    mask = text.find(MASK, max(0, start - len(MASK) + 1), end + len(MASK) - 1)
    return mask != -1 and mask <= start and end <= mask + len(MASK)
