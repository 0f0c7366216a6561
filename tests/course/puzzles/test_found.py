"""Found models: hidden programs, claims about heads, and their score."""

from pathlib import Path
from typing import Any

import pytest

from regard.errors import InputError
from regard_course.puzzles.found import hide_program, load_found, own_puzzle, score_claims
from regard_course.puzzles.puzzle import PUZZLES
from regard_course.sandbox import ForkServer
from tests.course.puzzles.conftest import Write
from tests.course.puzzles.planted_programs import IMPORTS
from tests.course.puzzles.test_puzzle import solution

OWN = "secret_name = select(indices, indices.map(lambda i: i - 2))\nanswer = aggregate(secret_name, tokens)"


@pytest.fixture
def hidden(tmp_path: Path, write: Write, fork_server: ForkServer) -> Path:
    puzzle = own_puzzle("xyz", 4, causal=True)
    paths = hide_program(write("mine", OWN), puzzle, tmp_path / "found", fork_server)
    assert [path.name for path in paths] == ["model.safetensors", "model.json", "claims.py", "found-key.json"]
    return tmp_path / "found"


def test_folder_does_not_contain_the_program(hidden: Path) -> None:
    for path in hidden.iterdir():
        content = path.read_bytes()
        assert b"secret_name" not in content and b"mine" not in content and b"i - 2" not in content, path


def test_found_model_answers_as_the_program(hidden: Path) -> None:
    run: Any = load_found(hidden)
    assert run.test(samples=200).exact_match == 1.0
    assert str(run.attend("xyzx").prediction).endswith("xy")


def test_answers_of_an_encoder(tmp_path: Path, write: Write, fork_server: ForkServer) -> None:
    hide_program(write("sort", solution("sort")), PUZZLES["sort"], tmp_path / "found", fork_server)
    run: Any = load_found(tmp_path / "found")
    assert run.test(samples=200).exact_match == 1.0


def test_claims_are_scored(hidden: Path, write: Write, fork_server: ForkServer) -> None:
    key = hidden.with_name("found-key.json")
    report = score_claims(hidden / "claims.py", key, fork_server)
    assert {claim.verdict for claim in report.claims} == {"no claim"} and len(report.claims) == 4
    [needed] = [claim.head for claim in report.claims if claim.needed]
    others = "\n".join(f"{claim.head} = None" for claim in report.claims if not claim.needed)
    right = f"{needed} = select(indices.map(lambda i: i + 2), indices)\n{others}"
    report = score_claims(write("right", right), key, fork_server)
    assert report.summary() == "right: 1 of 1 heads that answers need, and 3 of 3 heads that no answer needs"
    wrong = f"{needed} = select(indices, indices.map(lambda i: i - 1))\n{others.replace('None', 'select_all()', 1)}"
    report = score_claims(write("wrong", wrong), key, fork_server)
    assert report.summary() == "right: 0 of 1 heads that answers need, and 2 of 3 heads that no answer needs"
    assert "28% of the steps agree; in 'xx', step 1 selects [0] by your claim" in str(report)
    assert "no answer needs this head" in str(report)


def test_claims_that_do_not_fit_are_named(tmp_path: Path, hidden: Path, write: Write, fork_server: ForkServer) -> None:
    key = hidden.with_name("found-key.json")
    hide_program(
        write("mine", OWN.replace("- 2", "- 1")), own_puzzle("xyz", 4, causal=True), tmp_path / "b", fork_server
    )
    with pytest.raises(InputError, match=r"claims.py has claims about the model \w+, but found-key.json is the key"):
        score_claims(tmp_path / "b" / "claims.py", key, fork_server)
    with pytest.raises(InputError, match="claim about layer7_head0, which the model of found-key.json does not have"):
        score_claims(write("other", "layer7_head0 = select_all()"), key, fork_server)
    first, second, *_ = (claim.head for claim in score_claims(hidden / "claims.py", key, fork_server).claims)
    report = str(score_claims(write("numbers", f"{first} = 3\n{second} = tokens.map(str.upper)"), key, fork_server))
    assert f"{first:14} wrong: not a selector, but int" in report
    assert f"{second:14} wrong: not a selector, but an expression" in report


def test_heads_are_in_another_order_for_another_seed(tmp_path: Path, write: Write, fork_server: ForkServer) -> None:
    puzzle, needed = own_puzzle("xyz", 3, causal=True), set()
    for seed in range(4):
        hide_program(write("mine", OWN), puzzle, tmp_path / str(seed), fork_server, seed=seed)
        report = score_claims(tmp_path / str(seed) / "claims.py", tmp_path / f"{seed}-key.json", fork_server)
        needed |= {claim.head for claim in report.claims if claim.needed}
    assert len(needed) > 1


def test_bad_files_are_one_line(tmp_path: Path, hidden: Path, write: Write, fork_server: ForkServer) -> None:
    with pytest.raises(InputError, match="exists already"):
        hide_program(write("mine", OWN), own_puzzle("xyz", 4, causal=True), hidden, fork_server)
    with pytest.raises(InputError, match="more than 20,000 inputs: choose fewer"):
        hide_program(write("mine", OWN), own_puzzle("abcdefghij", 9, causal=True), tmp_path / "x", fork_server)
    (hidden / "model.json").write_text("{}")
    with pytest.raises(InputError, match="ask your teacher for the file again"):
        load_found(hidden)
    (tmp_path / "key.json").write_text('{"alphabet": "ab"}')
    with pytest.raises(InputError, match="write it again with --hide"):
        score_claims(write("claims", IMPORTS), tmp_path / "key.json", fork_server)
