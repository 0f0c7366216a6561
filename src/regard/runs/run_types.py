"""Types of runs that `regard.train` and `regard.load` return."""

from regard.runs.answer_run import AnswerRun
from regard.runs.language_run import LanguageRun
from regard.runs.pair_run import PairRun
from regard.runs.translation_run import TranslationRun

AnyRun = AnswerRun | PairRun | TranslationRun | LanguageRun
