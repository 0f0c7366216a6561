"""Runs: what a training leaves, and what one does with it. Train, load, test, look, ask, prune.

    run = regard.train("signal2", heads=8)
    run.test()
    run.attend("BCCCBAABACCCA")

    run = regard.train("dates")
    run.translate(["3. Mai 1979", "14 juillet 1989"])

The command line calls these, so whatever it can do, a notebook can.
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.runs.aligning import LinkedPair
    from regard.runs.answers import AnswerRun, TestReport
    from regard.runs.asking import without_text
    from regard.runs.drawing import draw_model
    from regard.runs.kinds import AnyRun
    from regard.runs.loading import SAVEPATH, load, load_translator
    from regard.runs.pairs import PairReport, PairRun
    from regard.runs.pictures import plot_positions
    from regard.runs.pruning import PruneReport, prune
    from regard.runs.run import Figures, Run
    from regard.runs.sequences import SequenceRun
    from regard.runs.train import train, train_seeds
    from regard.runs.translation import TranslationReport, TranslationRun

late(__name__)

__all__ = [
    "SAVEPATH",
    "AnswerRun",
    "AnyRun",
    "Figures",
    "LinkedPair",
    "PairReport",
    "PairRun",
    "PruneReport",
    "Run",
    "SequenceRun",
    "TestReport",
    "TranslationReport",
    "TranslationRun",
    "draw_model",
    "load",
    "load_translator",
    "plot_positions",
    "prune",
    "train",
    "train_seeds",
    "without_text",
]
