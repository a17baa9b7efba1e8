"""Ignore rules against git itself, secrets by name, and rules that want to hurt."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lastgood.files.rules import MAX_RULES, MAX_TEXT, MAX_WILD, UNREADABLE, RuleLevel, Rules

FOLDERS = (b"a", b"ab", b"b", b"a.b", b"\xff")
FILES = (
    b"abb",
    b"ba",
    b"!a",
    b"#a",
    b" a",
    b"a ",
    b"*",
    b"a\\",
    b"-",
    b"]",
    b"[a]",
    b"a\nb",
    b"a\tb",
    b"A1",
    b"\xc3\xa9",
    b".a",
)
ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}


def git(folder: Path, *arguments: str) -> bytes:
    command = ["git", "-c", "core.quotePath=false", *arguments]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders in folders, and in all of them files with the same names that rules may mean."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q")
    fill(os.fsencode(folder), depth=2)
    return folder


def fill(folder: bytes, depth: int) -> None:
    for name in FILES if depth else (*FILES, *FOLDERS):
        os.close(os.open(folder + b"/" + name, os.O_CREAT | os.O_WRONLY))
    for name in FOLDERS if depth else ():
        os.mkdir(folder + b"/" + name)  # noqa: PTH102
        fill(folder + b"/" + name, depth - 1)


def captured(folder: Path, exclude: bytes = b"") -> set[bytes]:
    """The files below `folder` that the rules leave in, found as a scan finds them."""
    root = os.fsencode(folder)

    def read(path: bytes) -> bytes | None:
        return Path(os.fsdecode(root + b"/" + path)).read_bytes()

    return set(walk(root, b"", Rules(read, exclude=exclude)))


def walk(root: bytes, path: bytes, rules: Rules) -> Iterator[bytes]:
    entries = {entry.name: entry.is_dir() for entry in os.scandir(root + b"/" + path) if entry.name != b".git"}
    level = rules.enter(path, entries.keys())
    for name, is_folder in entries.items():
        if level.decide(name, is_folder) is None:
            below = path + b"/" + name if path else name
            if is_folder:
                yield from walk(root, below, rules)
            else:
                yield below


def seen_by_git(folder: Path) -> set[bytes]:
    return set(git(folder, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")) - {b""}


def write_rules(folder: Path, texts: Mapping[str, bytes]) -> None:
    for file in FILES_OF_RULES:
        (folder / file).write_bytes(texts.get(file, b""))


FILES_OF_RULES = (".git/info/exclude", ".gitignore", "a/.gitignore", "a/b/.gitignore")

PIECES = [
    *(b"a", b"b", b"ab", b".", b"*", b"*", b"**", b"***", b"?", b"/", b"/", b"**/", b"/**", b"/**/", b"\\", b"\\/"),
    *(b"[ab]", b"[!a]", b"[^b]", b"[a-c]", b"[]a]", b"[!]]", b"[", b"]", b"[[:alpha:]]", b"[![:space:]]", b"[[:x:]]"),
    *(
        b"[a/]",
        b"[\\]]",
        b"[[:]",
        b"[--]",
        b"[a-",
        b"-",
        b"!",
        b"#",
        b" ",
        b"\\ ",
        b"\xff",
        b"\xc3\xa9",
        b"\r",
        b"\t",
        b"\0",
    ),
]
PATTERNS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map(b"".join)
LINES = st.tuples(st.sampled_from([b"", b"", b"!", b"/"]), PATTERNS, st.sampled_from([b"", b"", b"/", b" "])).map(
    b"".join
)
TEXTS = st.lists(LINES, max_size=5).map(b"\n".join)


@settings(max_examples=150)
@given(texts=st.dictionaries(st.sampled_from(FILES_OF_RULES), TEXTS, min_size=1))
def test_the_same_files_are_left_out_as_git_leaves_out(repository: Path, texts: dict[str, bytes]) -> None:
    """B1: a `.gitignore` means here what it means to git, at every level, with bytes that are no text."""
    write_rules(repository, texts)
    assert captured(repository, exclude=texts.get(".git/info/exclude", b"")) == seen_by_git(repository)


CORPUS = [
    *(b"**\\/ba", b"a/**\\/ba", b"a[[:space:]]b", b"a[[:blank:]]b", b"a[[:cntrl:]]b"),
    *(
        b"a**/b",
        b"a**",
        b"/a**",
        b"a/b**/a",
        b"/a**/**/b",
        b"/a**\\/b",
        b"a**/b**/a",
        b"a/**",
        b"a/**/",
        b"**/a/b",
        b"/**",
    ),
    *(b"**/**/ab", b"a/**/b", b"a/*/b", b"*/b", b"/*", b"/*/", b"*/", b"**/", b"**", b"***/b", b"a***/b", b"\\a**/b"),
    *(
        b"/",
        b"//",
        b"a//",
        b"//a",
        b"a//b",
        b"a\\/b",
        b"a\\/",
        b"a\\",
        b"a\\\\",
        b"\\!a",
        b"\\#a",
        b"!a",
        b"#a",
        b"\\*",
        b"[*]",
    ),
    *(
        b"a ",
        b"a\\ ",
        b"a\\  ",
        b" a",
        b"   ",
        b"a\t",
        b"a\r",
        b"a\r\r",
        b"\r",
        b"a\0b",
        b"\0",
        b"[a",
        b"[]",
        b"[]]",
        b"[!]]",
    ),
    *(
        b"[[]a]",
        b"\\[a]",
        b"[a-]*",
        b"[!-]",
        b"[^a]*",
        b"[b-a]*",
        b"[a-\\b]b",
        b"[[:upper:]]*",
        b"[[:digit:][:upper:]]?",
    ),
    *(
        b"[[:]",
        b"[[:a]b",
        b"[[::]]",
        b"[[:nope:]]",
        b"[![:alpha:]]",
        b"[[:punct:]]*",
        b"a[/]b",
        b"a[!x]b",
        b"a?b",
        b"?",
    ),
    *(
        b"\xff",
        b"[\xff]",
        b"[\x80-\xff]*",
        b"\xc3?",
        b"\xef\xbb\xbfa",
        b"a*b*",
        b"*a*b*b",
        b"*b*b",
        b"*.b",
        b"*b",
        b"A?",
    ),
    *(b"*\n!a/", b"/*\n!/a\n/a/*\n!/a/b", b"a\n!a/b", b"a/*\n!a/b", b"*\n!*/\n!*.b", b"a\n!a", b"!a\na", b"*\n!a/b/"),
]


@pytest.mark.parametrize("text", CORPUS)
def test_every_corner_of_the_syntax_is_read_as_git_reads_it(repository: Path, text: bytes) -> None:
    """B1: anchors, stars, classes, escapes, spaces, negation; and what no one would write."""
    write_rules(repository, {".gitignore": text})
    assert captured(repository) == seen_by_git(repository)


def level(text: bytes = b"", own: bytes = b"", path: bytes = b"", **others: object) -> RuleLevel:
    """The rules in the directory `path` when the root has these."""
    files = {b".gitignore": text, b".lastgoodignore": own}
    rules = Rules(files.get, **others)  # type: ignore[arg-type]
    return rules.enter(path, () if path else files)  # a parent that was not kept is entered again


def test_a_lastgoodignore_has_back_what_git_ignores() -> None:
    """B1: a folder, too, and what is then in it is captured."""
    assert level(b"build/\n*.log", b"!build/").decide(b"build", True) is None
    assert level(b"build/\n*.log", b"!build/", b"build").decide(b"out.bin", False) is None
    assert level(b"build/\n*.log", b"!build/", b"build").decide(b"out.log", False) == "ignored"
    assert level(b"build/\n*.log", b"!build/out.log").decide(b"build", True) == "ignored"


def test_a_lastgoodignore_above_is_stronger_than_a_gitignore_below() -> None:
    """B1."""
    files = {b".lastgoodignore": b"!data/**\ncache", b"data/.gitignore": b"*\n!cache"}
    rules = Rules(files.get)
    top = rules.enter(b"", [b".lastgoodignore"])
    below = rules.enter(b"data", [b".gitignore"])
    assert top.decide(b"data", True) is None
    assert below.decide(b"kept.csv", False) is None
    assert below.decide(b"cache", True) == "ignored"


def test_exclude_of_the_repository_is_the_weakest() -> None:
    """B1."""
    assert level(b"", exclude=b"a").decide(b"a", False) == "ignored"
    assert level(b"!a", exclude=b"a").decide(b"a", False) is None


SECRETS = [
    *(
        b".env",
        b".ENV",
        b".env.local",
        b".env.production",
        b"prod.env",
        b".envrc",
        b"server.pem",
        b"server.KEY",
        b".env~",
    ),
    *(b"id_rsa", b"id_ed25519", b"id_rsa_work", b"id_rsa.bak", b".netrc", b"_netrc", b".npmrc", b".pypirc", b".pgpass"),
    *(b"store.p12", b"store.pfx", b"passwords.kdbx", b"app.jks", b"credentials.json", b"service-account-prod.json"),
    *(b"client_secret_123.json", b".git-credentials", b"secrets.toml", b"kubeconfig", b"server.pem.bak", b"..env.swp"),
    *(b"\xff.pem", b".env.\xff"),
]
HARMLESS = [
    *(b".env.example", b".env.sample", b".env.template", b".env.local.example", b"example.env", b"id_rsa.pub"),
    *(
        b"id_ed25519.pub",
        b"environment.py",
        b"env",
        b"key",
        b"keys.py",
        b"pem",
        b"monkey",
        b"service-account.md",
        b"config",
    ),
    *(b"credentials", b"credentials.py", b"package.json", b"auth.json", b"secrets.py", b"\xff", b"~", b".bak", b"."),
]


@pytest.mark.parametrize("name", SECRETS)
def test_what_has_the_name_of_a_secret_is_left_out_and_says_so(name: bytes) -> None:
    """B1: secrets are kept out, visibly."""
    assert level().decide(name, False) == "secret"
    assert level(path=b"deep/down").decide(name, False) == "secret"


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_resembles_a_secret_is_captured(name: bytes) -> None:
    """B1."""
    assert level().decide(name, False) is None


def test_some_names_are_secrets_in_some_folders_only() -> None:
    """B1."""
    assert level(path=b"home/.aws").decide(b"credentials", False) == "secret"
    assert level(path=b".kube").decide(b"config", False) == "secret"
    assert level().decide(b".ssh", True) == "secret"
    assert level().decide(b".env", True) is None  # a folder of this name is a virtual environment


def test_a_secret_is_had_back_only_by_its_name() -> None:
    """B1: a `.lastgoodignore` that has everything back does not mean the keys."""
    assert level(own=b"!.env").decide(b".env", False) is None
    assert level(own=b"!.env*").decide(b".env", False) is None
    assert level(own=b"!*.pem").decide(b"ca.pem", False) is None
    assert level(own=b"!/certs/ca.pem", path=b"certs").decide(b"ca.pem", False) is None
    assert level(own=b"!/certs/ca.pem").decide(b"ca.pem", False) == "secret"
    assert level(own=b"!.env\n!*").decide(b".env", False) is None
    assert level(b".env", b"!.env").decide(b".env", False) is None
    assert level(own=b"!.env\n.env").decide(b".env", False) == "ignored"
    for broad in (b"!*", b"!**", b"!certs/**", b"!certs/", b"!*.*", b"!?env", b"!*.json"):
        assert level(own=broad, path=b"certs").decide(b".env", False) == "secret"
        assert level(own=broad, path=b"certs").decide(b"credentials.json", False) == "secret"
    assert level(b"!.env").decide(b".env", False) == "secret"  # a .gitignore speaks of git only


def digests(files: Mapping[bytes, bytes], *paths: bytes, **others: object) -> list[bytes]:
    rules = Rules(files.get, **others)  # type: ignore[arg-type]
    return [rules.enter(path, [b".gitignore", b".lastgoodignore"]).digest for path in paths]


def test_a_digest_stays_while_the_same_rules_hold() -> None:
    """B1, A4: so that decisions of the last scan may be trusted."""
    files = {b".gitignore": b"a", b"x/.gitignore": b"b"}
    assert digests(files, b"", b"x", b"y") == digests(dict(files), b"", b"x", b"y")
    assert len(set(digests(files, b"", b"x", b"y"))) == 2
    assert digests(files, b"")[0] == digests(files, b"y/z")[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({b".gitignore": b"a"}, {b".gitignore": b"b"}),
        ({b".gitignore": b"a"}, {b".lastgoodignore": b"a"}),
        ({b".gitignore": b"/a"}, {b"x/.gitignore": b"/a"}),
        ({b".gitignore": b"a"}, {}),
        ({b"x/.gitignore": b"a"}, {}),
        ({b".gitignore": b"ab", b".lastgoodignore": b"c"}, {b".gitignore": b"a", b".lastgoodignore": b"bc"}),
    ],
)
def test_a_digest_changes_with_the_rules_here_and_above(one: dict[bytes, bytes], other: dict[bytes, bytes]) -> None:
    """B1."""
    assert digests(one, b"x") != digests(other, b"x")


def test_a_digest_changes_with_what_the_repository_says() -> None:
    """B1."""
    found = [digests({}, b"", **others)[0] for others in ({}, {"exclude": b"a"}, {"exclude": b"b"})]
    assert len(set(found)) == 3


def test_rules_that_are_too_many_are_dropped_and_reported() -> None:
    """B1: the first ones hold."""
    many = b"\n".join(b"n%d" % number for number in range(MAX_RULES + 7))
    rules = Rules({b".gitignore": many}.get)
    top = rules.enter(b"", [b".gitignore"])
    assert top.decide(b"n0", False) == top.decide(b"n%d" % (MAX_RULES - 1), False) == "ignored"
    assert top.decide(b"n%d" % MAX_RULES, False) is None
    assert top.remarks == {b".gitignore": "7 of its rules left out: a file may have 10,000"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"*.log\n[a-\nbuild/", "line 2 can never match"),
        (b"# [a-\r\n\r\n   \n/\r\nok\r\nends\\", "line 4 and 1 more can never match"),
        (b"a//b\n[[:what:]]\n!\n[]\n/\n[\n\\\nok", "line 1 and 6 more can never match"),
        (b"*.log\n\\#a\n\\ \n[]]\n[!a]\n**\n/**/", None),
    ],
)
def test_lines_that_can_never_match_are_told(text: bytes, said: str | None) -> None:
    """B1: git passes over them without a word, and what should have been left out is captured."""
    rules = Rules({b".gitignore": text, b"x/.lastgoodignore": text}.get, exclude=text)
    top, below = rules.enter(b"", [b".gitignore"]), rules.enter(b"x", [b".lastgoodignore"])
    assert top.remarks == ({b".gitignore": said, b".git/info/exclude": said} if said else {})
    assert below.remarks == ({b".lastgoodignore": said} if said else {})


def test_an_ignore_file_that_cannot_be_read_is_told_and_one_that_is_not_there_is_not() -> None:
    rules = Rules(lambda path: None)
    assert rules.enter(b"", [b".gitignore"]).remarks == {b".gitignore": UNREADABLE}
    assert rules.enter(b"x", []).remarks == {}


def test_a_file_of_rules_that_is_too_long_is_cut_between_two_rules() -> None:
    """B1."""
    comment = b"#" + b"x" * 98 + b"\n"
    rules = Rules({b".gitignore": b"first\n" + comment * (MAX_TEXT // 99) + b"last\n"}.get)
    top = rules.enter(b"", [b".gitignore"])
    assert (top.decide(b"first", False), top.decide(b"last", False)) == ("ignored", None)
    assert top.remarks == {b".gitignore": "what is beyond 1,048,576 bytes left out"}


def test_wildcards_have_one_bound_for_all_files_on_the_way_down() -> None:
    """B1: what a name costs is bounded, however deep it lies."""
    wild = b"a?" * (MAX_WILD // 4) + b"\n*.plain\n"
    files = {b".gitignore": wild, b"x/.gitignore": wild, b"y/.gitignore": b"b?"}
    rules = Rules(files.get)
    rules_below = [rules.enter(path, [b".gitignore"]) for path in (b"", b"x", b"x/y", b"y")]
    assert [level.remarks for level in rules_below] == [{}, {}, {b".gitignore": UNREADABLE}, {}]
    assert rules.enter(b"x/z", []).room == 0
    files[b"x/z/.gitignore"] = b"b?\nplain"
    deepest = rules.enter(b"x/z", [b".gitignore"])
    too_many = "1 of its rules left out: those with wildcards are too many, here and in the folders above"
    assert deepest.remarks == {b".gitignore": too_many}
    assert (deepest.decide(b"bb", False), deepest.decide(b"plain", False)) == (None, "ignored")
    assert rules_below[-1].decide(b"bb", False) == "ignored"


NASTY = [
    b"*a" * 100 + b"b",
    b"a*" * 100 + b"b",
    b"*?" * 100 + b"b",
    b"[a-z]*" * 100 + b"[0-9]",
    b"**/" + b"*a" * 50 + b"/" + b"*a" * 50 + b"b",
    b"**/a/" * 60 + b"b",
    b"**/*a*/" * 40 + b"b",
    b"*" * 5000 + b"b",
    b"a**/" * 200 + b"b",
    b"\\" * 999,
    b"[" * 4000,
    b"[[:alpha:]" * 400,
]


@pytest.mark.parametrize("pattern", NASTY)
def test_no_pattern_takes_for_ever(pattern: bytes) -> None:
    """B1: with backtracking each of these takes longer than anyone waits."""
    files = {b".gitignore": pattern}
    rules = Rules(files.get)
    levels = [rules.enter(b"/".join([b"a" * 200] * depth), [b".gitignore"] if not depth else []) for depth in range(20)]
    for found in levels:
        assert found.decide(b"a" * 255, False) is None
        assert found.decide(b"a" * 255, True) is None


@given(text=st.binary(max_size=200), own=st.binary(max_size=100), names=st.lists(st.binary(min_size=1), max_size=5))
@example(text=b"\xef\xbb\xbf", own=b"!", names=[b"\0"])
def test_no_bytes_make_the_rules_raise(text: bytes, own: bytes, names: list[bytes]) -> None:
    """B1: rules are hostile input, names are any bytes."""
    here = level(text, own, b"/".join(name.replace(b"/", b"x") for name in names))
    for name in names:
        assert here.decide(name, False) in (None, "ignored", "secret")
        assert here.decide(name, True) in (None, "ignored", "secret")


@pytest.mark.parametrize("line", [b"*/x%d", b"*.d/x%d", b"**/d/x%d", b"a*%d*"])
def test_rules_that_have_to_be_tried_one_by_one_are_bounded_and_the_rest_is_reported(line: bytes) -> None:
    """H5: 10,000 of them took a minute; an ending is looked up only where it is the last name."""
    text = b"\n".join(line % number for number in range(MAX_RULES))
    top = Rules({b".gitignore": text}.get).enter(b"", [b".gitignore"])
    assert "of its rules left out: those with wildcards are too many" in top.remarks[b".gitignore"]
    text = b"\n".join(b"src/*.x%d" % number for number in range(MAX_RULES))
    assert Rules({b".gitignore": text}.get).enter(b"", [b".gitignore"]).remarks == {}


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_the_last_of_many_rules_with_wildcards_decides(count: int) -> None:
    """H5: they are tried many at once."""
    rules = [(b"!" if number % 3 == 1 else b"") + b"[a-%c]a*e" % (110 + number % 10) for number in range(count)]
    level = Rules({b".gitignore": b"\n".join([*rules, b"q*r"])}.get).enter(b"", [b".gitignore"])
    assert (level.decide(b"name", False) is None) is ((count - 1) % 3 == 1)
    assert level.decide(b"other", False) is None
    assert level.decide(b"quarter", False) == "ignored"
