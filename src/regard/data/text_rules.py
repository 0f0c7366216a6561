"""Rules for text before it is split into tokens: Unicode normalization, quotes, lower case, and whole symbols.

The rules become normalizers of the `tokenizers` library, so that they are stored with the vocabulary and hold in
every program that reads it. A whole symbol, such as a language tag or a placeholder, is replaced by a character
of a private use area before the normalization, and restored after it. No normalization can change it.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from tokenizers import Regex, normalizers, pre_tokenizers

from regard.data.vocabulary import BLANK
from regard.errors import InputError, shorten

Normalization = Literal["nfkc", "quotes"]
QUOTES = {
    '"': "\u201c\u201d\u201e\u201f\u00ab\u00bb\u301d\u301e",
    "'": "\u2018\u2019\u201a\u201b\u2039\u203a\u0060\u00b4",
}
"""Characters that become straight quotes: curved and angle quotes, and accents used as quotes, as in Moses."""
MARKS = 0xF0000
"""First character of the private use area (plane 15) that stands for a symbol during normalization."""
MOST_SYMBOLS = 1000
PUNCTUATION = r"[\p{P}$+<=>^`|~]"
RESERVED_SYMBOL = re.compile(r"<(pad|s|/s|unk|0x[0-9A-F]{2})>")
"""Names of special tokens and of bytes in vocabularies."""


def check_symbols(symbols: Sequence[str]) -> tuple[str, ...]:
    """Return the symbols that stay whole. A single symbol that names a file is replaced by the lines of the file.

    Raises `InputError` for symbols with whitespace, names of special tokens, duplicates, and too many symbols.

    >>> check_symbols(["<2en>", "__NUM__"])
    ('<2en>', '__NUM__')
    """
    names = symbols
    if len(symbols) == 1 and Path(symbols[0]).is_file():
        try:
            symbols = [line for line in Path(symbols[0]).read_text(encoding="utf-8").splitlines() if line]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {symbols[0]!r}: give a UTF-8 file with one symbol a line") from error
    if not symbols and names:
        raise InputError(f"{names[0]!r} has no symbols: give a file with one symbol a line")
    if len(names) == 1 and not symbols[0].startswith("<") and Path(names[0]).suffix and symbols == names:
        raise InputError(f"no file {names[0]!r}: give a file with one symbol a line, or symbols like '<2en>'")
    for symbol in symbols:
        problem = ""
        if symbol.split() != [symbol] or BLANK in symbol or not symbol.isprintable():
            problem = "has a space or an invisible character"
        elif RESERVED_SYMBOL.fullmatch(symbol):
            problem = "is the name of a special token"
        elif any(ord(character) >= MARKS for character in symbol):
            problem = "has a character of a private use area"
        elif symbols.count(symbol) > 1:
            problem = "is given twice"
        if problem:
            raise InputError(f"symbol {shorten(symbol)} {problem}: give symbols such as '<2en>' or __NUM__")
    if len(symbols) > MOST_SYMBOLS:
        raise InputError(f"symbols has {len(symbols):,} entries: give at most {MOST_SYMBOLS:,}")
    return tuple(symbols)


def make_normalizer(
    *, lowercase: bool = False, normalize: Sequence[Normalization] = (), symbols: Sequence[str] = ()
) -> normalizers.Normalizer:
    """Return a normalizer: NFC, or NFKC with single spaces, straight quotes, and lower case, except in symbols.

    >>> rules = make_normalizer(lowercase=True, normalize=["nfkc", "quotes"], symbols=["__NUM__"])
    >>> rules.normalize_str("„Ｅｉｎ__NUM__“")
    '"ein__NUM__"'
    """
    # A symbol that is a part of another symbol must not replace this part.
    longest_first = sorted(symbols, key=len, reverse=True)
    marks = [(symbol, chr(MARKS + number)) for number, symbol in enumerate(longest_first)]
    steps: list[normalizers.Normalizer] = []
    if marks:  # characters of the area in the text itself must not become symbols
        steps.append(normalizers.Replace(Regex(f"[{marks[0][1]}-{marks[-1][1]}]"), "\ufffd"))
    steps += [normalizers.Replace(symbol, mark) for symbol, mark in marks]
    if "quotes" in normalize:  # before NFKC, which makes a space of an accent
        steps += [
            normalizers.Replace(Regex(f"[{characters}]"), straight) for straight, characters in QUOTES.items()
        ]
    if "nfkc" in normalize:
        # NFKC makes spaces of other characters. Words are tokenized one by one, so that their spaces may depend
        # only on the word.
        steps += [normalizers.NFKC(), normalizers.Replace(Regex(" +"), " ")]
        steps.append(normalizers.Replace(Regex(r"\A | \z"), ""))
    else:
        steps.append(normalizers.NFC())
    if lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence([*steps, *(normalizers.Replace(mark, symbol) for symbol, mark in marks)])


def make_pre_tokenizer(symbols: Sequence[str] = ()) -> pre_tokenizers.PreTokenizer:
    """Return a splitter of text into words that begin with `▁`, punctuation marks, and whole symbols.

    A symbol after a space includes the `▁`, so that a tag at the beginning of a text is one token.
    """
    punctuation: pre_tokenizers.PreTokenizer = pre_tokenizers.Punctuation("isolated")
    if symbols:
        whole = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
        punctuation = pre_tokenizers.Split(Regex(f"{BLANK}?(?:{whole})|{PUNCTUATION}"), "isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.Metaspace(BLANK, prepend_scheme="always"), punctuation])


def whole_symbols(normalizer: dict[str, object]) -> list[str]:
    """Return the whole symbols of a stored normalizer (plain data of the `tokenizers` library)."""
    steps: Any = normalizer.get("normalizers", [])
    contents = [
        (step.get("pattern", {}).get("String", ""), step["content"])
        for step in steps
        if step.get("type") == "Replace"
    ]
    return [content for pattern, content in contents if len(pattern) == 1 and ord(pattern) >= MARKS]
