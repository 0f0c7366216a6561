"""Compiled models beside trained models."""

import torch

from regard_course.puzzles.models import CompiledPuzzle, compile_puzzle, match_heads, train_beside
from regard_course.puzzles.puzzle import PUZZLES
from regard_course.puzzles.verdict import check_file
from regard_course.sandbox import ForkServer
from tests.course.puzzles.conftest import Write
from tests.course.puzzles.test_puzzle import solution


def compiled_solution(name: str, write: Write, server: ForkServer) -> CompiledPuzzle:
    program, _ = check_file(write(name, solution(name)), PUZZLES[name], server)
    return compile_puzzle(PUZZLES[name], program)


def test_each_selector_matches_its_own_head(write: Write, fork_server: ForkServer) -> None:
    compiled = compiled_solution("induction", write, fork_server)
    for match in match_heads(compiled, compiled.compiled.model):
        assert match.similarity > 0.999 and match.matches, match
    names = [match.selector for match in match_heads(compiled, compiled.compiled.model)]
    assert names == ["before", "match", f"selector in line {6}"]


def test_attention_of_a_head_is_its_selector(write: Write, fork_server: ForkServer) -> None:
    compiled = compiled_solution("reverse", write, fork_server)
    places = {name: place for place, name in compiled.heads.items()}
    weights = compiled.attention(compiled.compiled.model, "abcc")[places["opposite"]]
    torch.testing.assert_close(weights[:, 1:], torch.eye(4).flip(0), atol=1e-4, rtol=0)


def test_untrained_model_matches_nothing_and_a_trained_one_is_right(write: Write, fork_server: ForkServer) -> None:
    compiled = compiled_solution("first", write, fork_server)
    trained = train_beside(compiled)
    assert compiled.count_right(trained) == len(compiled.puzzle.inputs)
    [match] = match_heads(compiled, trained)
    assert 0.3 < match.uniform < 0.32 and match.similarity > match.uniform
    for parameter in trained.parameters():
        torch.nn.init.zeros_(parameter)
    [match] = match_heads(compiled, trained)
    assert not match.matches and abs(match.similarity - match.uniform) < 1e-5
    assert "no head does this" in str(match)
