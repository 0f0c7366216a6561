"""Translations of the course: German is complete, and a folder with a fault is refused in one line."""

import ast
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

import regard
from regard.errors import InputError
from regard_course.exercises.course import EXERCISES
from regard_course.handed_in import KINDS
from regard_course.inputs import MESSAGES
from regard_course.lessons.lesson import FIGURES, PARTS, RUNS, english_text, find_lesson, lessons
from regard_course.mistakes.known import TEXTS
from regard_course.pages import (
    NOTES,
    build_texts,
    exercise_page,
    index_page,
    lesson_notebook,
    lesson_page,
    list_gaps,
    read_exercise,
    read_originals,
)
from regard_course.pictures import picture_texts
from regard_course.progress import VERDICTS
from regard_course.report import State
from regard_course.translated import find_language, make_digest
from tests.course.checking import Command, write

COURSE = Path(regard.__file__).parents[1] / "regard_course"
GERMAN = find_language("de")
ENGLISH_WORDS = r"\b(the|is|are|of|should|not|with|your|yours|right|wrong|and|which|line|shape|first|input)\b"
SCRIPTS = ("notes.js", "learn.js", "course-commands.js")


@pytest.mark.parametrize("name", read_originals())
def test_a_german_text_has_the_code_of_its_original(name: str) -> None:
    original = read_originals()[name]
    text, state = GERMAN.translate(name, original)  # raises an error for changed code
    if state in ("", "older"):
        assert text != original and not re.search(r"(?<=[\w,] )(Sie|Ihnen|Ihre?)\b", text)  # du, not Sie
        assert _numbers(text) == _numbers(original)


def _numbers(text: str) -> Counter[str]:
    """Return the numbers in a text, without separators of thousands and without code blocks."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return Counter(re.findall(r"\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text)))


def test_german_is_complete() -> None:
    assert list_gaps("de") == []


def test_german_has_all_texts_of_the_code() -> None:
    known, scripts = {text for part in GERMAN.words.values() for text in part}, GERMAN.words["scripts"]
    texts = {*PARTS, *NOTES.values(), *VERDICTS, *get_args(State), *KINDS.values(), "This exercise's stub"}
    for path in COURSE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.search(r"\bsay$", ast.unparse(node.func)):
                texts |= {node.args[0].value} if isinstance(node.args[0], ast.Constant) else set()
    for path in (COURSE / "html").iterdir():
        texts |= set(re.findall(r"\[\[(.+?)\]\]", path.read_text(encoding="utf-8")))
    assert set(VERDICTS) <= set(scripts)
    for file in SCRIPTS:
        found = re.findall(r'say\(\s*"([^"]+)"', (COURSE / file).read_text(encoding="utf-8"))
        assert found and set(found) <= set(scripts), file
    for lesson in lessons("de"):
        if not lesson.state:
            texts |= {*picture_texts(lesson.name), *(run.name for run in lesson.runs)}
            texts |= {FIGURES[name] for ranges in lesson.ranges.values() for name in ranges}
    for table in (
        MESSAGES,
        MESSAGES["signals"],
        MESSAGES["search"],
        MESSAGES["advice"],
        TEXTS["papers"],
        TEXTS["places"],
    ):
        texts |= {text for text in table.values() if isinstance(text, str)}
    for row in (*TEXTS["quantities"].values(), *TEXTS["mistakes"].values()):
        texts |= {row[key] for key in ("before", "name", "did", "instead") if key in row} | {*row.get("parts", ())}
    for exercise in EXERCISES:
        texts |= {exercise.source, exercise.instruction, *exercise.outputs} - {""}
        texts |= {text for case in exercise.cases(0) for text in (case.name, *case.outputs)}
    assert texts - known == set()
    assert set(GERMAN.words["checker"]) <= texts  # no translation of a text that is gone
    assert not [text for text in GERMAN.words["checker"] if GERMAN.say(text) == text and re.search(ENGLISH_WORDS, text)]


def test_a_report_is_german(tmp_path: Path, command: Command) -> None:
    answers = (
        "import numpy as np\nnp.seterr(all='ignore')\n"
        "def score(query, key): return query @ key.swapaxes(1, 2) / query.shape[-1] ** (1 / 3)\n"
        "def rms_norm(states, gain): return states / np.sqrt((states**2).sum(-1, keepdims=True) + 1e-5) * gain\n"
        "def cached_causal_mask(queries, keys): return np.ones(3)\n"
        "def swiglu(states, w_gate, w_up, w_down): return undefined\n"
        "def auroc(doubts, faulty): exit()\n"
        "def learn_merges(tokens, count, first): raise NotImplementedError\n"
    )
    path = write(tmp_path, answers)
    status, out, err = command("check", path, "--language", "de")
    assert status == 1 and not re.search(ENGLISH_WORDS, re.sub(r"'.*?'|NameError.*|Zeile.*", "", out + err)), out
    assert "  ✗ Primzahlen als Größen" in out and "Die erste Größe, die abweicht: die skalierten Scores" in out
    assert "angehalten, ruft sys.exit auf" in out and "learn_merges: nicht begonnen" in out
    reports = (regard.check(path, "rms_norm", language=language).json() for language in ("de", "en"))
    mine, original = (report["exercises"][0] for report in reports)
    names, english = ([case["name"] for case in report["cases"]] for report in (mine, original))
    assert mine["state"] == "wrong" and names == english
    finding, known = (part["diagnoses"][0]["findings"][0] for part in (mine, original))
    assert finding["name"] == known["name"] and finding["did"] == GERMAN.say(known["did"]) != known["did"]


def test_pages_and_notebooks_are_german() -> None:
    lesson = find_lesson("counting", "de")
    page = lesson_page(lesson, see="")
    assert '<html lang="de"' in page and "<h2>Vorhersage</h2>" in page and ">Eingabe (4, 3)</text>" in page
    assert lesson_page(find_lesson("counting"), see="").count("<pre>") == page.count("<pre>")
    assert "üblich: 10 Seeds ergaben" in lesson.describe_figures({"exact_match": 0.9994})[0]
    cells = [cell["source"] for cell in lesson_notebook(lesson)["cells"]]
    assert 'picture("counting", language="de")' in cells[1] and cells[2].startswith("## Vorhersage")
    assert "Übung 1" in exercise_page("score", "de")
    assert "learn --stubs exercises --language de" in index_page("de")
    exercise = read_exercise("score", "de").exercise
    assert (
        exercise.stub.startswith('"""Übung: der Score einer Query')
        and "dann: regard check THIS_FILE.py --language de" in exercise.stub
    )
    assert "03_attention.py --language de</code>" in exercise_page("attention", "de")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the English texts."""
    for path, content in build_texts(tmp_path / "mine").items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "mine"


def test_an_untranslated_text_is_english_and_says_so(folder: Path, command: Command) -> None:
    (folder / "lessons" / "tokens.md").unlink()
    assert {lesson.state for lesson in lessons(str(folder))} == {"missing"}
    page = lesson_page(find_lesson("tokens", str(folder)), see="")
    assert page.count("not translated yet") == 1 and '<div lang="en">' in page
    status, _, err = command("learn", "--language", folder, "--notebooks", folder / "notebooks")
    gaps = list_gaps(str(folder))
    assert status == 0 and err.count("\n") == 1 and f"{len(gaps)} texts are missing or older" in err
    assert err.endswith(f"regard learn --language {folder} --gaps\n")
    status, out, err = command("learn", "--language", folder, "--gaps")
    assert status == 0 and not err and out.splitlines() == gaps
    assert len([gap for gap in gaps if ".md: not translated" in gap]) == len(RUNS) + len(EXERCISES) + 1
    assert any("words.json: not translated: 'Predict'" in gap for gap in gaps)


def test_the_command_reports_gaps_in_the_language(folder: Path, command: Command) -> None:
    assert command("learn", "--language", "de", "--gaps")[1] == "The translation de is complete.\n"
    for name in ("lessons/tokens.md", "exercises/score.md", "words.json"):
        shutil.copy(COURSE / "translations" / "de" / name, folder / name)
    err = command("learn", "--language", folder, "--stubs", folder / "stubs")[2]
    assert (
        err.startswith(f"regard: {len(list_gaps(str(folder)))} Texte fehlen oder sind älter") and err.count("\n") == 1
    )
    index = index_page(str(folder))
    assert index.count("(auf Englisch)") == len(RUNS) + len(EXERCISES) - 2
    assert "Byte-Paare von Hand</a> <small" in index and "Averages and look-ups</a> <em>(auf Englisch)" in index


def test_a_newer_original_is_noticed(folder: Path) -> None:
    path = folder / "lessons" / "tokens.md"
    text = path.read_text(encoding="utf-8").replace("# Tokens: byte pairs by hand", "# Jetons")
    path.write_text(re.sub(r"\A.*", f"original: {make_digest('old')}", text), encoding="utf-8")
    lesson = find_lesson("tokens", str(folder))
    assert lesson.title == "Jetons" and lesson.state == "older" and "text is newer" in lesson_page(lesson, see="")
    digest = f"begin it with 'original: {make_digest(english_text('tokens'))}'"
    assert any(
        f"lessons/tokens.md: older than the English text; when it is up to date, {digest}" in line
        for line in list_gaps(str(folder))
    )
    find_language.cache_clear()
    lessons.cache_clear()
    path.write_text(path.read_text(encoding="utf-8").replace("`learn_merges`", "`apprendre`"), encoding="utf-8")
    lesson = find_lesson("tokens", str(folder))
    assert lesson.state == "outdated" and lesson.title == "Tokens: byte pairs by hand"


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        ("joins the most frequent pair", "merges the most frequent pair", "older"),
        ("print(*text)", "print(text)", "outdated"),
    ],
)
def test_an_edit_of_an_english_lesson_is_noticed(
    command: Command, monkeypatch: pytest.MonkeyPatch, before: str, after: str, state: str
) -> None:
    def edited(name: str) -> str:
        return english_text(name).replace(before, after)

    assert edited("tokens") != english_text("tokens")
    for module in ("lessons.lesson", "pages"):
        monkeypatch.setattr(f"regard_course.{module}.english_text", edited)
    lessons.cache_clear()
    try:
        lesson = find_lesson("tokens", "de")
        assert lesson.state == state and (lesson.title == "Tokens: byte pairs by hand") == (state == "outdated")
        assert GERMAN.say(NOTES[lesson.state]) in lesson_page(lesson, see="")
        assert ("(auf Englisch)" in index_page("de")) == (state == "outdated")
        status, out, _ = command("learn", "--language", "de", "--gaps")
        assert status == 0 and out.count("\n") == 1
        assert out.startswith("lessons/tokens.md: older than the English text")
    finally:
        lessons.cache_clear()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("## Why\n", "", "the parts are Predict, Answer, By hand, See, Exercises, but must be Predict"),
        ("`learn_merges`", "`lernen`", "part 'Exercises' lacks the command or code 'learn_merges'"),
        ("print(*text)", "print(text)", "has the line 'print(text)' in a code block, which must be 'print(*"),
        ("low e 3 15", "low e 3 16", "'low e 3 16' in a code block, which must be 'low e 3 15'"),
        ("low e 3 15\n", "", "has the line 'low _ 2 13' in a code block, which must be 'low e 3 15'"),
        ("```text\n", "", "part 'By hand' has 1 code blocks, but the original has 2"),
        ("## Why", "## Pourquoi", "the heading 'Pourquoi' must be 'Why', or add it to words.json"),
        ("- In which", "In which", "part 'Exercises' lacks the item of a list '- '"),
        ("original: ", "digest: ", "does not begin with the line 'original: "),
    ],
)
def test_a_fault_in_a_folder_is_one_line(folder: Path, command: Command, before: str, after: str, words: str) -> None:
    path = folder / "lessons" / "tokens.md"
    assert before in path.read_text(encoding="utf-8")
    path.write_text(path.read_text(encoding="utf-8").replace(before, after, 1), encoding="utf-8")
    status, _, err = command("learn", "--language", folder, "--stubs", folder / "stubs")
    assert status == 2 and err.count("\n") == 1 and words in err, err
    assert not (folder / "stubs").exists()


def test_words_keep_their_placeholders(folder: Path) -> None:
    path = folder / "words.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"Lesson {0}": ""', '"Lesson {0}": "Leçon"'))
    with pytest.raises(InputError, match=re.escape("the translation of 'Lesson {0}' must contain {0}, not none")):
        find_language(str(folder))
    path.write_text(path.read_text(encoding="utf-8").replace("Leçon", "Leçon {0} {1}"), encoding="utf-8")
    with pytest.raises(InputError, match=re.escape("must contain {0}, not {0} {1}")):
        find_language(str(folder))
    path.write_text("[]")
    with pytest.raises(InputError, match="is damaged"):
        find_language(str(folder))


def test_an_unknown_language_names_the_choices(command: Command) -> None:
    for words in (("learn", "--stubs", "stubs"), ("check", "mine.py")):
        status, _, err = command(*words, "--language", "xx")
        assert status == 2 and err.startswith("regard: language 'xx' is unknown: choose en, de, or a folder")
        assert "--texts" in err and err.count("\n") == 1


def test_texts_to_translate_have_digests(tmp_path: Path, command: Command) -> None:
    status, out, _ = command("learn", "--texts", tmp_path / "fr")
    assert status == 0 and f"Wrote {len(read_originals()) + 1} texts" in out
    text = (tmp_path / "fr" / "lessons" / "waves.md").read_text(encoding="utf-8")
    assert text == f"original: {make_digest(english_text('waves'))}\n\n{english_text('waves').strip()}\n"
