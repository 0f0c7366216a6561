"""Regard from Python: what the commands do, as calls with the same names and defaults.

    run = regard.train("signal2", heads=8)
    run.test()
    run.attend("BCCCBAABACCCA")

    run = regard.train("dates")
    run.translate(["3. Mai 1979", "14 juillet 1989"])

The command line calls these, so whatever it can do, a notebook can.
"""

from regard.api.answers import AnswerRun, TestReport
from regard.api.loading import SAVEPATH, load
from regard.api.pairs import PairReport, PairRun
from regard.api.positions import plot_positions
from regard.api.run import Run
from regard.api.sequences import SequenceRun
from regard.api.training import train
from regard.api.translation import TranslationReport, TranslationRun

__all__ = [
    "SAVEPATH",
    "AnswerRun",
    "PairReport",
    "PairRun",
    "Run",
    "SequenceRun",
    "TestReport",
    "TranslationReport",
    "TranslationRun",
    "load",
    "plot_positions",
    "train",
]
