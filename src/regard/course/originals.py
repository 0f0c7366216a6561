"""The English texts of the course as files to translate, and what a translation lacks."""

import json
from pathlib import Path

from regard.course.exercise_pages import english_exercise
from regard.course.exercises import EXERCISES
from regard.course.lessons import RUNS
from regard.course.lessons.lesson import english_text
from regard.course.pages import read_asset
from regard.course.pictures import DRAWINGS, picture_texts
from regard.course.translated import find_language, make_digest

WORDS_FROM = "de"
"""The language whose `words.json` has all texts of the pages and scripts; a test compares it with the code."""
SHOWN = 5
"""Number of file names in a message."""


def read_originals() -> dict[str, str]:
    """Return the English Markdown texts by the names of their files, without suffix."""
    return {
        **{f"lessons/{name}": english_text(name) for name in RUNS},
        **{f"exercises/{exercise.name}": english_exercise(exercise.name) for exercise in EXERCISES},
        "challenges": read_asset("challenges.md"),
    }


def read_words() -> dict[str, list[str]]:
    """Return the English texts of the pages, their scripts and the pictures."""
    words = find_language(WORDS_FROM).words
    pictures = dict.fromkeys(text for name in DRAWINGS for text in picture_texts(name))
    return {"pages": list(words["pages"]), "scripts": list(words["scripts"]), "pictures": list(pictures)}


def build_texts(folder: Path) -> dict[Path, bytes]:
    """Return the path and content of each file to translate."""
    texts = {
        folder / f"{name}.md": f"original: {make_digest(text)}\n\n{text.strip()}\n".encode()
        for name, text in read_originals().items()
    }
    words = {part: dict.fromkeys(keys, "") for part, keys in read_words().items()}
    return {**texts, folder / "words.json": (json.dumps(words, indent=2, ensure_ascii=False) + "\n").encode()}


def describe_gaps(language: str) -> list[str]:
    """Return a line for each kind of text that a translation lacks. Raises `InputError` if a file is invalid."""
    chosen = find_language(language)
    if chosen.folder is None:
        return []
    states = {name: chosen.translate(name, text)[1] for name, text in read_originals().items()}
    missing = [name for name, state in states.items() if state == "missing"]
    old = [
        f"{name} (original: {make_digest(text)})"
        for name, text in read_originals().items()
        if states[name] in ("older", "outdated")
    ]
    keys = [key for part in read_words().values() for key in part]
    words = [repr(key) for key in keys if not any(part.get(key) for part in chosen.words.values())]
    return [
        f"language {chosen.name}: {line} {', '.join(names[:SHOWN])}" + (" ..." if len(names) > SHOWN else "")
        for names, line in (
            (missing, f"not translated and shown in English: {len(missing)} texts,"),
            (words, f"not translated in words.json: {len(words)} of {len(keys)} texts,"),
            (old, f"the English text is newer than the translation: {len(old)} texts,"),
        )
        if names
    ]
