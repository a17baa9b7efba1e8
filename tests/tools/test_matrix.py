"""`./dev matrix`: requirements that are built have tests, and tests cite what there is."""

from __future__ import annotations

from pathlib import Path

from tools.matrix import TESTS, Requirements, cited, find_citations, problems, read_requirements

TEST = '''
"""About X1 and {0}4."""

def test_one() -> None:
    """{0}1, {0}7 to {0}9."""

async def test_two() -> None:
    # {0}2: here
    pass

def helper() -> None:
    """{0}3"""
'''.format("A")  # so that this test cites nothing of it itself


def test_what_is_built_is_cited_by_a_test() -> None:
    assert problems(read_requirements(), find_citations(*TESTS)) == []


def test_docstrings_and_comments_of_tests_cite(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(TEST)
    found = {id_: [test.split("/")[-1] for test in tests] for id_, tests in find_citations(tmp_path).items()}
    assert found == {
        "A4": ["test_planted.py"],
        "A1": ["test_planted.py::test_one"],
        "A7": ["test_planted.py::test_one"],
        "A8": ["test_planted.py::test_one"],
        "A9": ["test_planted.py::test_one"],
        "A2": ["test_planted.py::test_two"],
    }


def test_a_requirement_without_a_test_and_a_test_without_a_requirement_are_problems() -> None:
    requirements = Requirements({"A1": "saved", "A2": "synced"}, {"A3": "later"})
    found = problems(requirements, {"A1": ["tests/a.py::test_a"], "A3": [], "A5": ["tests/b.py::test_b"]})
    assert [sentence.split(" ")[0] for sentence in found] == ["A2", "A5"]


def test_a_range_is_cited_with_all_between() -> None:
    assert cited("G1 to G3, G3 and I4; not UTF8 or SHA256") == ["G1", "G2", "G3", "I4"]
