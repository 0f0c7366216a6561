"""Small parallel corpora with English: sentences of one template with a small lexicon, in seven languages.

    python -m tests.toy_corpora chinese 300 FOLDER

writes train.tsv and valid.tsv (100 pairs) with the English sentence first. No pair occurs twice.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path

Words = list[str]
VALID = 100  # Number of validation pairs
KINDS = ("adjectives", "nouns", "places", "verbs")


def _lexicon(*rows: str) -> dict[str, Words]:
    return {kind: row.split() for kind, row in zip(KINDS, rows, strict=True)}


ENGLISH = _lexicon(
    "big small red white old young",
    "dog cat man woman child bird horse teacher girl student doctor friend",
    "park school kitchen street garden forest",
    "sees likes finds calls follows draws",
)
LEXICA = {
    "chinese": _lexicon(
        "大 小 红色的 白色的 老 年轻的",
        "狗 猫 男人 女人 孩子 鸟 马 老师 女孩 学生 医生 朋友",
        "公园 学校 厨房 街上 花园 森林",
        "看见 喜欢 找到 叫 跟着 画",
    ),
    "japanese": _lexicon(
        "大きい 小さい 赤い 白い 古い 若い",
        "犬 猫 男の人 女の人 子ども 鳥 馬 先生 女の子 学生 医者 友だち",
        "公園 学校 台所 通り 庭 森",
        "見る 好む 見つける 呼ぶ 追う 描く",
    ),
    "korean": _lexicon(
        "큰 작은 빨간 하얀 늙은 젊은",
        "개 고양이 남자 여자 아이 새 말 선생님 소녀 학생 의사 친구",
        "공원에서 학교에서 부엌에서 거리에서 정원에서 숲에서",
        "본다 좋아한다 찾는다 부른다 따라간다 그린다",
    ),
    "thai": _lexicon(
        "ใหญ่ เล็ก สีแดง สีขาว แก่ หนุ่ม",
        "หมา แมว ผู้ชาย ผู้หญิง เด็ก นก ม้า ครู เด็กผู้หญิง นักเรียน หมอ เพื่อน",
        "สวนสาธารณะ โรงเรียน ห้องครัว ถนน สวน ป่า",
        "เห็น ชอบ พบ เรียก ตาม วาด",
    ),
    "khmer": _lexicon(
        "ធំ តូច ក្រហម ស ចាស់ ក្មេង",
        "ឆ្កែ ឆ្មា បុរស ស្ត្រី កូន បក្សី សេះ គ្រូ ក្មេងស្រី សិស្ស វេជ្ជបណ្ឌិត មិត្តភក្តិ",
        "ឧទ្យាន សាលារៀន ផ្ទះបាយ ផ្លូវ សួនច្បារ ព្រៃ",
        "ឃើញ ចូលចិត្ត រកឃើញ ហៅ តាម គូរ",
    ),
    "lao": _lexicon(
        "ໃຫຍ່ ນ້ອຍ ສີແດງ ສີຂາວ ເຖົ້າ ໜຸ່ມ",
        "ໝາ ແມວ ຜູ້ຊາຍ ຜູ້ຍິງ ເດັກ ນົກ ມ້າ ຄູ ເດັກຍິງ ນັກຮຽນ ໝໍ ໝູ່",
        "ສວນສາທາລະນະ ໂຮງຮຽນ ເຮືອນຄົວ ຖະໜົນ ສວນ ປ່າ",
        "ເຫັນ ມັກ ພົບ ເອີ້ນ ຕາມ ແຕ້ມ",
    ),
    "german": _lexicon(
        "große kleine rote weiße alte junge",
        "Hund Katze Mann Frau Kind Vogel Pferd Lehrer Mädchen Schüler Arzt Freund",
        "Park Schule Küche Straße Garten Wald",
        "sieht mag findet ruft verfolgt malt",
    ),
}


def _korean(first: str, noun: str, second: str, other: str, place: str, verb: str) -> str:
    closed = [(ord(word[-1]) - 0xAC00) % 28 > 0 for word in (noun, other)]
    subject, thing = noun + "가이"[closed[0]], other + "를을"[closed[1]]
    return f"{first} {subject} {place} {second} {thing} {verb}."


ORDERS: dict[str, Callable[..., str]] = {
    "chinese": lambda a, n, b, m, p, v: f"{a}{n}在{p}{v}{b}{m}。",
    "japanese": lambda a, n, b, m, p, v: f"{a}{n}が{p}で{b}{m}を{v}。",
    "korean": _korean,
    "thai": lambda a, n, b, m, p, v: f"{n}{a}{v}{m}{b}ใน{p}",
    "khmer": lambda a, n, b, m, p, v: f"{n}{a}{v}{m}{b}នៅក្នុង{p}។",
    "lao": lambda a, n, b, m, p, v: f"{n}{a}{v}{m}{b}ໃນ{p}",
    "german": lambda a, n, b, m, p, v: f"{a} {n} {v} {b} {m} im {p}.",
    "english": lambda a, n, b, m, p, v: f"the {a} {n} {v} the {b} {m} in the {p}.",
}


def toy_pairs(language: str, count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Return `count` different pairs: an English sentence, and its translation into the language.

    >>> toy_pairs("chinese", 1)[0][1][-1]
    '。'
    """
    kinds = ("adjectives", "nouns", "adjectives", "nouns", "places", "verbs")
    source, target = ([lexicon[kind] for kind in kinds] for lexicon in (ENGLISH, LEXICA[language]))
    generator, pairs = random.Random(seed), dict[tuple[str, str], None]()
    while len(pairs) < count:
        choice = [generator.randrange(len(words)) for words in source]
        pairs[
            ORDERS["english"](*map(list.__getitem__, source, choice)),
            ORDERS[language](*map(list.__getitem__, target, choice)),
        ] = None
    return list(pairs)


def write_toy_corpus(folder: Path, language: str, count: int, *, reverse: bool = False) -> None:
    """Write train.tsv with `count` pairs, and valid.tsv with other pairs. `reverse`: English is the target."""
    pairs = [pair[::-1] if reverse else pair for pair in toy_pairs(language, count + VALID)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", pairs[VALID:]), ("valid", pairs[:VALID])):
        lines = "".join(f"{source}\t{target}\n" for source, target in part)
        (folder / f"{name}.tsv").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    write_toy_corpus(Path(sys.argv[3]), sys.argv[1], int(sys.argv[2]), reverse="--reverse" in sys.argv)
