"""Parallel text from Debian packages: 62,000 pairs of Spanish and English Bible verses, in the public domain.

    apt-get download sword-text-sparv sword-text-web sword-text-kjv
    for package in *.deb; do dpkg-deb --extract $package packages; done
    python examples/bible_corpus.py packages bibles

The script writes train.tsv, and one file for each held-out part and English edition, such as story.web.tsv.
A tag at the beginning of each source names the edition: <web> or <kjv>.
"""

import html
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

SOURCE = "spaRV1909eb"
TARGETS = {"web": "engWEB2015eb", "kjv": "engKJV2006eb"}
HELD_OUT = {"valid": "Lam Joel Jonah Titus 1Pet", "story": "Ruth Esth", "wisdom": "Eccl", "letters": "Phil Jas"}
PARTS = {book: part for part, books in HELD_OUT.items() for book in books.split()}
"""Held-out books without parallels in others. A random split would put verses into training and test at once."""
SHIFTED = "Num.13 Num.30 1Sam.24 1Kgs.22 1Chr.21 2Chr.33 Job.39 Job.40 Hos.12 Jonah.2"
"""Chapters with other verses in Spanish: few verses share their Strong's numbers with the King James Version."""
CHAPTER = re.compile(r'<chapter [^>]*osisID="([^"]+)"')
NOTES = r"<(note|title|speaker)\b[^>]*>.*?</\1>"
BETWEEN_WORDS = rf"(?:{NOTES}|</w>(?=<transChange)|</(?:transChange|q)>)(?=(?:<[^>]*>)*[\w“\u2018])"
"""Markup that becomes a space: "<w>God</w><note>...</note><w>created</w>" would otherwise give "Godcreated"."""
NOT_TEXT = rf"{NOTES}|<[^>]*>|¶|\\nd "


def read(module: Path) -> dict[tuple[str, int], str]:
    """Return the verses of a module by chapter and number, such as ("Gen.1", 1), without shifted chapters."""
    verses, chapter, number = dict[tuple[str, int], str](), "", 0
    for entry in entries(module):
        if heading := CHAPTER.search(entry):
            chapter, number = heading[1], 0
            continue
        number += 1
        text = re.sub(NOT_TEXT, "", re.sub(BETWEEN_WORDS, " ", entry, flags=re.DOTALL), flags=re.DOTALL)
        if chapter and chapter not in SHIFTED.split() and (words := html.unescape(text).split()):
            verses[chapter, number] = " ".join(words)
    return verses


def entries(module: Path) -> Iterator[str]:
    """Yield the entries of a module in order: headings, chapters and verses, with their OSIS markup."""
    for testament in ("ot", "nt"):
        index, blocks, text = ((module / f"{testament}.bz{part}").read_bytes() for part in "vsz")
        packed = [text[start : start + size] for start, size, _ in struct.iter_unpack("<3I", blocks)]
        books = [zlib.decompress(book) if book else b"" for book in packed]
        for book, start, size in struct.iter_unpack("<IIH", index):
            yield books[book][start : start + size].decode() if size else ""


def main(packages: Path, out: Path) -> None:
    """Write the parts, and print the number of pairs in each."""
    modules = {path.name: path for path in packages.rglob("modules/texts/ztext/*")}
    if missing := {SOURCE, *TARGETS.values()} - set(modules):
        sys.exit(f"{packages} has no {', '.join(sorted(missing))}: extract the three packages into this folder")
    source, parts = read(modules[SOURCE]), {"train": list[tuple[str, str]]()}
    for edition, target in ((edition, read(modules[name])) for edition, name in TARGETS.items()):
        for verse in (verse for verse in source if verse in target):
            part = PARTS.get(verse[0].partition(".")[0])
            pair = f"<{edition}> {source[verse]}", target[verse]
            parts.setdefault(f"{part}.{edition}" if part else "train", []).append(pair)
    held_out = {side for part, pairs in parts.items() if part != "train" for pair in pairs for side in pair}
    parts["train"] = [pair for pair in parts["train"] if held_out.isdisjoint(pair)]
    out.mkdir(parents=True, exist_ok=True)
    for part, pairs in parts.items():
        lines = "".join("\t".join(pair) + "\n" for pair in pairs)
        (out / f"{part}.tsv").write_text(lines, encoding="utf-8")
        print(f"{part}.tsv: {len(pairs):,} pairs")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: python {sys.argv[0]} PACKAGES OUT")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
