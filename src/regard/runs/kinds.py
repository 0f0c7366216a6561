"""The kinds of run: what `regard.train` and `regard.load` return."""

from regard.runs.answers import AnswerRun
from regard.runs.pairs import PairRun
from regard.runs.translation import TranslationRun

AnyRun = AnswerRun | PairRun | TranslationRun
