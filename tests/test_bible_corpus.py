"""`examples/bible_corpus.py` reads SWORD modules and holds out whole books."""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "examples" / "bible_corpus.py"
CHAPTER = '<chapter n="1" osisID="{}.1" sID="{}.1"/>'


def write_module(folder: Path, old: dict[str, list[str]], new: dict[str, list[str]]) -> None:
    """Write a zText module with one chapter per book. Blocks hold one book each, after an empty first block."""
    folder.mkdir(parents=True)
    for testament, books in (("ot", old), ("nt", new)):
        index, blocks, text = struct.pack("<IIH", 0, 0, 0), struct.pack("<3I", 0, 0, 0), b""
        for number, (book, verses) in enumerate(books.items(), start=1):
            heading = f'<div osisID="{book}" type="book"/><title>{book}</title>'
            raw = b""
            for entry in (heading, CHAPTER.format(book, book), *verses):
                index += struct.pack("<IIH", number, len(raw), len(entry.encode()))
                raw += entry.encode()
            packed = zlib.compress(raw)
            blocks += struct.pack("<3I", len(text), len(packed), len(raw))
            text += packed
        for name, content in (("v", index), ("s", blocks), ("z", text)):
            (folder / f"{testament}.bz{name}").write_bytes(content)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)


def test_verses_are_aligned_by_chapter_and_number(tmp_path: Path) -> None:
    modules = tmp_path / "packages" / "usr" / "share" / "sword" / "modules" / "texts" / "ztext"
    write_module(
        modules / "spaRV1909eb",
        {"Gen": ["<w>EN el principio</w> <w>crió</w> <w>Dios</w>. ", "", "<w>Haya</w><transChange>luz</transChange>."]}
        | {"Ruth": ["Y aconteció."], "1Kgs": ["Amén."]},
        {"Jude": ["<w>Judas</w>, siervo."], "Titus": ["Amén."]},
    )
    write_module(
        modules / "engWEB2015eb",
        {
            "Gen": [
                "In the beginning, <w>God</w><note>The <b>word</b></note><w>created</w>.",
                "Empty.",
                "“Light &amp; day.”",
            ]
        }
        | {"Ruth": ["<q>It happened</q><q>then</q>."], "Tob": ["Only here."], "1Kgs": ["Yes."]},
        {"Jude": ["<w>Jude</w><note>or Judah</note>, a servant."], "Titus": ["Amen."]},
    )
    write_module(
        modules / "engKJV2006eb",
        {
            "Gen": ["In the beginning.", "Empty.", "¶ The \\nd LORD."],
            "Ruth": ["It came to pass."],
            "1Kgs": ["So be it."],
        },
        {"Jude": ["Jude."], "Titus": ["So be it."]},
    )
    done = run(tmp_path / "packages", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    files = {path.name: path.read_text(encoding="utf-8").splitlines() for path in (tmp_path / "out").iterdir()}
    assert files == {
        "train.tsv": [  # the Amen of 1Kgs has a source in a held-out book
            "<web> EN el principio crió Dios.\tIn the beginning, God created.",
            "<web> Haya luz.\t“Light & day.”",
            "<web> Judas, siervo.\tJude, a servant.",
            "<kjv> EN el principio crió Dios.\tIn the beginning.",
            "<kjv> Haya luz.\tThe LORD.",
            "<kjv> Judas, siervo.\tJude.",
        ],
        "story.web.tsv": ["<web> Y aconteció.\tIt happened then."],
        "story.kjv.tsv": ["<kjv> Y aconteció.\tIt came to pass."],
        "valid.web.tsv": ["<web> Amén.\tAmen."],
        "valid.kjv.tsv": ["<kjv> Amén.\tSo be it."],
    }
    assert "train.tsv: 6 pairs" in done.stdout


def test_missing_packages_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "usr" / "modules" / "texts" / "ztext" / "spaRV1909eb").mkdir(parents=True)
    done = run(tmp_path, tmp_path / "out")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "has no engKJV2006eb, engWEB2015eb" in done.stderr
    assert run(tmp_path).stderr.startswith("usage: ")
