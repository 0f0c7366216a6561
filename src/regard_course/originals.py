"""The English texts of the course as files to translate, and what a translation lacks."""

import json
from pathlib import Path

from regard_course.exercises.course import EXERCISES
from regard_course.lessons.lesson import RUNS, english_text
from regard_course.pages import english_exercise, read_asset
from regard_course.pictures import picture_texts
from regard_course.translated import find_language, make_digest

WORDS_FROM = "de"
"""The language whose `words.json` has all texts of the pages and scripts; a test compares it with the code."""


def read_originals() -> dict[str, str]:
    """Return the English Markdown texts by the names of their files, without suffix."""
    return {
        **{f"lessons/{name}": english_text(name) for name in RUNS},
        **{f"exercises/{exercise.name}": english_exercise(exercise.name) for exercise in EXERCISES},
        "challenges": read_asset("challenges.md"),
    }


def read_words() -> dict[str, list[str]]:
    words = find_language(WORDS_FROM).words
    pictures = dict.fromkeys(text for name in RUNS for text in picture_texts(name))
    return {"pages": list(words["pages"]), "scripts": list(words["scripts"]), "pictures": list(pictures)}


def build_texts(folder: Path) -> dict[Path, bytes]:
    """Return the path and content of each file to translate."""
    texts = {
        folder / f"{name}.md": f"original: {make_digest(text)}\n\n{text.strip()}\n".encode()
        for name, text in read_originals().items()
    }
    words = {part: dict.fromkeys(keys, "") for part, keys in read_words().items()}
    return {**texts, folder / "words.json": (json.dumps(words, indent=2, ensure_ascii=False) + "\n").encode()}


def list_gaps(language: str) -> list[str]:
    """Return a line for each text that is not translated, or that is older than its original. Raises
    `InputError` if a file is invalid."""
    chosen = find_language(language)
    if chosen.folder is None:
        return []
    lines = []
    for name, text in read_originals().items():
        state = chosen.translate(name, text)[1]
        if state == "missing":
            lines.append(f"{name}.md: not translated, shown in English")
        elif state:
            shown = ", shown in English" if state == "outdated" else ""
            lines.append(
                f"{name}.md: older than the English text{shown}; when it is up to date, begin it with "
                f"'original: {make_digest(text)}'"
            )
    return lines + [
        f"words.json: not translated: {key!r}"
        for key in (key for part in read_words().values() for key in part)
        if not any(part.get(key) for part in chosen.words.values())
    ]
