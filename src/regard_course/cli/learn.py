"""`regard learn`: open the course, or write it as a website or as notebooks."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.parsing import PageFlags, read_command
from regard.cli.terminal import print_message
from regard.io import write_new
from regard_course.translated import find_language, known_languages


@dataclass(frozen=True, kw_only=True)
class LearnFlags(PageFlags):
    """Open the course: 19 lessons, from dictionary look-up to Transformers and language models. Most lessons train a
    model here. With --site, --notebooks or --stubs the course is written to files. Needs the extra serve."""

    site: Path | None = None
    """Write the course to this folder as web pages that work offline. Missing runs are trained for minutes."""
    notebooks: Path | None = None
    """Write the lessons to this folder as Jupyter notebooks."""
    language: str = "en"
    """Language of the course: en, de, or the folder of a translation."""
    gaps: bool = False
    """List what the translation of --language lacks, and do nothing else."""
    texts: Path | None = None
    """Write the English texts to this folder, to translate them. Then use the folder as the language."""
    stubs: Path | None = None
    """Write templates for the exercises to this folder. Check a solution with: regard check FILE.py."""
    savepath: Path = Path("course")
    """Directory of the lessons' runs."""


def run_learn(argv: list[str]) -> None:
    """Write the requested files, or serve the course until interrupted."""

    _, flags = read_command(LearnFlags, argv, "regard learn")
    from regard_course.check import build_stubs
    from regard_course.course_app import teach
    from regard_course.exercises.course import EXERCISES
    from regard_course.pages import (  # imports a parser of Markdown
        build_notebooks,
        build_texts,
        check_site,
        list_gaps,
        read_exercise,
        write_site,
    )

    language = flags.language
    if language not in known_languages() and Path(language).is_dir():
        language = str(Path(language).absolute())  # notebooks in another folder name it, too
    gaps = list_gaps(language)
    if flags.gaps:
        sys.stdout.write("\n".join(gaps or [f"The translation {flags.language} is complete."]) + "\n")
        return
    if gaps:
        print_message(
            find_language(language).say(
                "{0} texts are missing or older than the English text. Their list: {1}",
                len(gaps),
                f"regard learn --language {shlex.quote(flags.language)} --gaps",
            )
        )
    exercises = [read_exercise(exercise.name, language).exercise for exercise in EXERCISES]
    stubs = build_stubs(flags.stubs, exercises) if flags.stubs else {}
    notebooks = build_notebooks(flags.notebooks, flags.savepath, language) if flags.notebooks else {}
    texts = build_texts(flags.texts) if flags.texts else {}
    if flags.site is not None:
        check_site(flags.site)
    write_new({**stubs, **notebooks, **texts})  # all or none
    if stubs:
        sys.stdout.write(f"Wrote {len(stubs)} stubs into {flags.stubs}\n")
    if notebooks:
        sys.stdout.write(f"Wrote {len(notebooks)} notebooks into {flags.notebooks}\n")
    if texts:
        sys.stdout.write(f"Wrote {len(texts)} texts into {flags.texts}; then: regard learn --language {flags.texts}\n")
    if flags.site is not None:
        paths = write_site(flags.site, flags.savepath, language)
        sys.stdout.write(f"Wrote {len(paths)} files into {flags.site}\n")
    if not (stubs or notebooks or texts or flags.site):
        teach(flags.savepath, language, port=flags.port, host=flags.host, browser=flags.browser)
        raise KeyboardInterrupt  # the server returns only after Ctrl-C
