"""Types of runs that `regard.train` and `regard.load` return."""

from regard.runs.sequence_run import PairRun, TranslationRun
from regard.runs.tensor_run import AnswerRun, LanguageRun

AnyRun = AnswerRun | PairRun | TranslationRun | LanguageRun
