"""Small changes to the product are noticed by its tests; a change is found again after the lines above it moved."""

import ast
import subprocess
import sys

import pytest

from tests.stress import mutants as trying
from tests.stress.mutants import Mutant, mutants_of, mutate

SOURCE = '''"""A module."""

def half(x: int, whole: bool = False) -> int:
    return x / 2 if whole else x // 2
'''


@pytest.mark.stress
def test_most_changes_drawn_at_random_are_noticed(tmp_path):
    out = tmp_path / "tried.jsonl"  # as a script: a package `tests` in memory would import the product from here
    command = [sys.executable, "tests/stress/mutants.py", "--n", "24", "--seed", "51", "--out", str(out)]
    subprocess.run(command, cwd=trying.ROOT, check=True)
    assert len(out.read_text(encoding="utf-8").splitlines()) == 24
    assert len(trying.survivors(out)) <= 8, trying.survivors(out)


def test_every_change_is_one_and_is_found_again_where_lines_have_moved(tmp_path):
    (tmp_path / "half.py").write_text(SOURCE)
    mutants = list(mutants_of(tmp_path / "half.py", tmp_path))
    assert {m.change for m in mutants} == {
        "False -> True", "x / 2 if whole else x // 2 -> x // 2", "x / 2 -> x * 2", "x // 2 -> x * 2", "2 -> 3",
    }  # fmt: skip
    for mutant in mutants:
        changed, moved = mutate(SOURCE, mutant), mutate("import os\n" * 9 + SOURCE, mutant)
        assert ast.dump(ast.parse(moved)) == ast.dump(ast.parse("import os\n" * 9 + changed))
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))


def test_a_change_that_is_no_longer_there_is_to_be_drawn_anew():
    with pytest.raises(LookupError, match="draw anew"):
        mutate(SOURCE, Mutant("half.py", 4, "x + 1 -> x - 1"))
