"""Vocabulary of Phrases: English and German words with their German inflection.

The lists omit nouns with an accusative ending and verbs without an accusative object.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun: English singular and plural, German gender (m, f, n), singular and plural."""

    singular: str
    plural: str
    gender: str
    german_singular: str
    german_plural: str


class Verb(NamedTuple):
    """A transitive verb: English (see, sees, seen) and German (sehen, sieht, gesehen)."""

    base: str
    third: str
    participle: str
    german_infinitive: str
    german_third: str
    german_participle: str


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


_NOUNS = """
dog dogs m Hund Hunde | cat cats f Katze Katzen | horse horses n Pferd Pferde | cow cows f Kuh Kühe |
bird birds m Vogel Vögel | mouse mice f Maus Mäuse | wolf wolves m Wolf Wölfe | fox foxes m Fuchs Füchse |
goat goats f Ziege Ziegen | pig pigs n Schwein Schweine | hen hens f Henne Hennen | duck ducks f Ente Enten |
bee bees f Biene Bienen | man men m Mann Männer | woman women f Frau Frauen | child children n Kind Kinder |
girl girls n Mädchen Mädchen | father fathers m Vater Väter | mother mothers f Mutter Mütter |
brother brothers m Bruder Brüder | sister sisters f Schwester Schwestern | son sons m Sohn Söhne |
daughter daughters f Tochter Töchter | friend friends m Freund Freunde | teacher teachers m Lehrer Lehrer |
baker bakers m Bäcker Bäcker | doctor doctors m Arzt Ärzte | king kings m König Könige |
queen queens f Königin Königinnen | thief thieves m Dieb Diebe | guest guests m Gast Gäste |
singer singers m Sänger Sänger | farmer farmers m Landwirt Landwirte | house houses n Haus Häuser |
garden gardens m Garten Gärten | door doors f Tür Türen | window windows n Fenster Fenster |
table tables m Tisch Tische | chair chairs m Stuhl Stühle | bed beds n Bett Betten | lamp lamps f Lampe Lampen |
clock clocks f Uhr Uhren | book books n Buch Bücher | letter letters m Brief Briefe |
picture pictures n Bild Bilder | song songs n Lied Lieder | word words n Wort Wörter |
title titles m Titel Titel | tree trees m Baum Bäume | flower flowers f Blume Blumen |
apple apples m Apfel Äpfel | pear pears f Birne Birnen | egg eggs n Ei Eier | loaf loaves n Brot Brote |
cake cakes m Kuchen Kuchen | stone stones m Stein Steine | mountain mountains m Berg Berge |
river rivers m Fluss Flüsse | lake lakes m See Seen | bridge bridges f Brücke Brücken |
road roads f Straße Straßen | city cities f Stadt Städte | village villages n Dorf Dörfer |
church churches f Kirche Kirchen | school schools f Schule Schulen | ship ships n Schiff Schiffe |
car cars n Auto Autos | wheel wheels n Rad Räder | key keys m Schlüssel Schlüssel | coat coats m Mantel Mäntel |
hat hats m Hut Hüte | shoe shoes m Schuh Schuhe | ring rings m Ring Ringe | star stars m Stern Sterne |
cloud clouds f Wolke Wolken | island islands f Insel Inseln | spoon spoons m Löffel Löffel
"""
NOUNS = tuple(Noun(*entry.split()) for entry in _NOUNS.split("|"))

_VERBS = """
see sees seen sehen sieht gesehen | love loves loved lieben liebt geliebt |
find finds found finden findet gefunden | seek seeks sought suchen sucht gesucht |
hear hears heard hören hört gehört | know knows known kennen kennt gekannt |
buy buys bought kaufen kauft gekauft | bring brings brought bringen bringt gebracht |
paint paints painted malen malt gemalt | praise praises praised loben lobt gelobt |
ask asks asked fragen fragt gefragt | forget forgets forgotten vergessen vergisst vergessen |
hide hides hidden verstecken versteckt versteckt | show shows shown zeigen zeigt gezeigt |
take takes taken nehmen nimmt genommen | carry carries carried tragen trägt getragen |
lose loses lost verlieren verliert verloren | watch watches watched beobachten beobachtet beobachtet |
greet greets greeted grüßen grüßt gegrüßt | visit visits visited besuchen besucht besucht |
need needs needed brauchen braucht gebraucht | draw draws drawn zeichnen zeichnet gezeichnet |
describe describes described beschreiben beschreibt beschrieben | wake wakes woken wecken weckt geweckt |
fear fears feared fürchten fürchtet gefürchtet | hold holds held halten hält gehalten |
catch catches caught fangen fängt gefangen | lift lifts lifted heben hebt gehoben |
sell sells sold verkaufen verkauft verkauft | steal steals stolen stehlen stiehlt gestohlen
"""
VERBS = tuple(Verb(*entry.split()) for entry in _VERBS.split("|"))

ADJECTIVES = _pairs("""
small klein big groß old alt new neu young jung red rot green grün blue blau white weiß black schwarz
yellow gelb brown braun grey grau tired müde happy froh sad traurig clever klug quiet still loud laut
fast schnell slow langsam warm warm cold kalt rich reich poor arm strong stark weak schwach
beautiful schön ugly hässlich good gut bad schlecht round rund heavy schwer light leicht thin dünn
thick dick famous berühmt strange seltsam dear lieb wild wild clean rein
""")

TIMES = _pairs("""
today heute tomorrow morgen often oft now jetzt always immer perhaps vielleicht then dann soon bald
rarely selten again wieder sometimes manchmal here hier outside draußen there dort
""")

THINKERS = {"he": ("er", True), "she": ("sie", True), "we": ("wir", False), "they": ("sie", False)}
"""Subjects of the verbs in `THOUGHTS`: the German word, and whether it is singular."""
THOUGHTS = (
    ("know", "knows", "wissen", "weiß"),
    ("say", "says", "sagen", "sagt"),
    ("hope", "hopes", "hoffen", "hofft"),
    ("think", "thinks", "glauben", "glaubt"),
    ("hear", "hears", "hören", "hört"),
)
MODALS = (("can", "können", "kann"), ("must", "müssen", "muss"), ("may", "dürfen", "darf"))
NUMBERS = _pairs("two zwei three drei four vier five fünf many viele")

WEAK = {"m": ("e", "en"), "f": ("e", "e"), "n": ("e", "e"), "p": ("en", "en")}
"""Adjective endings in nominative and accusative by gender (p: plural), after articles that mark the gender."""
MIXED = {"m": ("er", "en"), "f": ("e", "e"), "n": ("es", "es"), "p": ("en", "en")}
"""Adjective endings after articles that do not mark the gender in the nominative."""
DEFINITE = {
    ("the", "m"): ("der", "den"),
    ("the", "f"): ("die", "die"),
    ("the", "n"): ("das", "das"),
    ("the", "p"): ("die", "die"),
    ("this", "m"): ("dieser", "diesen"),
    ("this", "f"): ("diese", "diese"),
    ("this", "n"): ("dieses", "dieses"),
    ("these", "p"): ("diese", "diese"),
}
"""Articles that mark the gender, in nominative and accusative."""
INDEFINITE = {
    (english, gender): (stem + ("e" if gender in "fp" else ""), stem + {"m": "en", "n": ""}.get(gender, "e"))
    for english, stem in (("a", "ein"), ("my", "mein"), ("her", "ihr"), ("no", "kein"))
    for gender in ("mfn" if english == "a" else "mfnp")
}
"""Articles that do not mark the gender in the nominative."""
