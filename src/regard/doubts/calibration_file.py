"""The calibration of a run's doubt, as stored in trust.json in the folder of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from regard.doubts.basis import Basis, References
from regard.doubts.classifier import Classifier
from regard.errors import InputError
from regard.io.reading import DamageError, convert_json, damaged_file
from regard.runs import SequenceRun

FILE = "trust.json"
FORMAT = "regard-trust/2"
MEND = "delete it, and run `regard trust` again"
Origin = Literal["translations", "references"]
"""Translations of the run, or references of a text."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What is stored with a run: the classifier, its thresholds and the basis of its features."""

    classifier: Classifier
    features: list[str]
    usual: np.ndarray
    """(2, F): values between which 95 % of the features of good translations lie."""
    thresholds: dict[Origin, float]
    basis: Basis
    reverse: str | None
    """Folder of the run of the opposite direction."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """Content of trust.json."""

    format: Literal["regard-trust/2"]
    step: int
    kinds: list[str]
    features: list[str]
    mean: list[float]
    scale: list[float]
    weights: list[list[float]]
    usual: list[list[float]]
    thresholds: dict[Origin, float]
    frequencies: list[float]
    references: list[list[float]] | None
    lengths: list[int] | None
    reverse: str | None
    report: dict[str, Any]


def store_calibration(run: SequenceRun, calibration: Calibration, report: dict[str, Any]) -> None:
    """Store a calibration and its report in the folder of a run."""
    classifier, references = calibration.classifier, calibration.basis.references
    content = {
        "format": FORMAT,
        "step": run.step,
        "kinds": list(classifier.kinds),
        "features": calibration.features,
        "mean": classifier.mean.tolist(),
        "scale": classifier.scale.tolist(),
        "weights": classifier.weights.tolist(),
        "usual": calibration.usual.tolist(),
        "thresholds": calibration.thresholds,
        "frequencies": calibration.basis.frequencies.round(3).tolist(),
        "references": None if references is None else references.masses.round(5).tolist(),
        "lengths": None if references is None else references.lengths.tolist(),
        "reverse": calibration.reverse,
        "report": report,
    }
    run.files.write_derived(FILE, content)


def read_calibration(run: SequenceRun) -> Calibration:
    """Return the calibration that is stored with a run.

    Raises `InputError` if there is none, if the model has been trained further, or if the file is damaged.
    """
    content = run.files.read_derived(FILE, MEND)
    if content is not None:
        try:
            stored = convert_json(content, _Stored)
        except DamageError as error:
            raise damaged_file(run.files.path / FILE, error, MEND) from error
        if stored.step == run.step:
            return _restore(stored)
    raise InputError(
        f"the doubt of run {str(run.folder)!r} is not calibrated: run `regard trust {run.folder}` first"
    )


def _restore(stored: _Stored) -> Calibration:
    references = None
    if stored.references is not None and stored.lengths is not None:
        references = References(masses=np.array(stored.references), lengths=np.array(stored.lengths))
    return Calibration(
        classifier=Classifier(
            kinds=tuple(stored.kinds),
            mean=np.array(stored.mean),
            scale=np.array(stored.scale),
            weights=np.array(stored.weights),
        ),
        features=stored.features,
        usual=np.array(stored.usual),
        thresholds=stored.thresholds,
        basis=Basis(frequencies=np.array(stored.frequencies), references=references),
        reverse=stored.reverse,
    )
