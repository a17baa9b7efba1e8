"""The language of paths, against a model that is slow and plain to see."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lastgood.errors import InvalidError
from lastgood.files.selection import Selection, locate, paths_in, select, split_exact

names = st.text("ab.*?[]!-^z:\udcff", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
pieces = st.sampled_from(["a", "b", ".", "*", "**", "?", "[ab]", "[!a]", "[!-b]", "[z-a]", "[a--b]", "[]a]", "[", "-"])
patterns = st.lists(
    st.one_of(st.just("**"), st.lists(pieces, min_size=1, max_size=3).map("".join)), min_size=1, max_size=4
).map("/".join)
usable = patterns.filter(lambda text: {".", ".."}.isdisjoint(text.split("/")))


@given(st.lists(usable | paths, max_size=3), paths)
@example(["*.py"], "src/a.py")
@example(["src/**"], "src")
@example(["**/a"], "a")
@example(["a/**/b"], "a/b")
@example(["[!-b]"], "a")
@example(["[a-z]"], "[a-z]")
@example(["a*"], "ab/c/d")
@example(["[:/]"], ":")
def test_a_path_is_covered_when_it_or_a_folder_above_it_matches(texts: list[str], path: str) -> None:
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    expected = any(folder == text or matches(text, folder) for text in texts for folder in above)
    assert Selection(texts).covers(os.fsencode(path)) == expected


def matches(pattern: str, path: str, *, at_start: bool = True) -> bool:
    if not pattern:
        return not path
    if pattern.startswith("**/") and at_start:
        ends = [0, *(place + 1 for place, letter in enumerate(path) if letter == "/")]
        return any(matches(pattern[3:], path[end:]) for end in ends)
    if pattern.startswith("**"):
        return any(matches(pattern[2:], path[end:], at_start=False) for end in range(len(path) + 1))
    if pattern[0] == "*":
        most = len(path.partition("/")[0])
        return any(matches(pattern[1:], path[end:], at_start=False) for end in range(most + 1))
    members, rest = one_letter(pattern)
    return path != "" and members(path[0]) and matches(rest, path[1:], at_start=path[0] == "/")


def one_letter(pattern: str) -> tuple[Callable[[str], bool], str]:
    """What the first piece of the pattern matches, and the pattern after it."""
    if pattern[0] == "?":
        return lambda letter: letter != "/", pattern[1:]
    start = 2 if pattern.startswith("[!") else 1
    end = pattern.find("]", start + 1)
    if pattern[0] != "[" or end < 0 or "/" in pattern[:end]:
        end = pattern.find("]", start)
        if pattern[0] != "[" or end <= start or "/" in pattern[:end]:
            return lambda letter: letter == pattern[0], pattern[1:]
    inside, members = pattern[start:end], set[str]()
    while inside:
        if inside[1:2] == "-" and inside[2:]:
            members.update(map(chr, range(ord(inside[0]), ord(inside[2]) + 1)))
            inside = inside[3:]
        else:
            members.add(inside[0])
            inside = inside[1:]
    return lambda letter: letter != "/" and (letter in members) == (start == 1), pattern[end + 1 :]


@pytest.mark.parametrize(
    ("pattern", "above"),
    [
        ("*a" * 30 + "*b", "a" * 200),
        ("**a" * 30 + "b", "a" * 200),
        ("**/a/" * 30 + "b", "a/" * 120),
        ("**/*a*a/" * 30 + "b", "aaaa/" * 120),
        ("**" + "?*" * 30 + "/b", "a" * 200 + "/"),
    ],
)
def test_no_pattern_is_tried_for_hours(pattern: str, above: str) -> None:
    """A pattern with n stars was tried in as many ways as n places can be chosen in the path."""
    chosen = Selection([pattern])
    assert [chosen.covers(os.fsencode(above + name)) for name in ("b", "b/a", "a")] == [True, True, False]


@given(usable)
def test_a_leading_dot_and_a_trailing_slash_change_nothing(text: str) -> None:
    same = (text, f"./{text}", f"{text}/", f"./{text}/")
    assert len({Selection([each]).covers(b"a/b") for each in same}) == 1


@pytest.mark.parametrize("text", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./", ".", "a\0"])
def test_what_names_nothing_below_the_workspace_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        Selection([text])


def test_a_name_selects_one_of_several_folders() -> None:
    texts = ["app:src/*", "README", "c:d"]
    assert paths_in("app", texts) == ["src/*", "README"]
    assert paths_in("infra", texts) == ["README"]
    assert paths_in("", texts) == texts
    assert select(["app:"], "app") is None
    assert select(None, "infra") is None
    for nothing in (select(["app:"], "infra"), select([])):
        assert nothing is not None
        assert not nothing.covers(b"any/thing")


def test_one_exact_path_is_located() -> None:
    assert locate("app:src/x", ["app", "infra"]) == ("app", "src/x")
    assert locate("app/src/x", ["app", "infra"]) == ("app", "src/x")
    assert locate("app:src/x", [""]) == ("", "app:src/x")
    assert split_exact("./src//x/") == [b"src", b"x"]
    for path in ("a/../b", "a\0"):
        with pytest.raises(InvalidError):
            split_exact(path)
