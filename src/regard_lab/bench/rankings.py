"""Rank inputs, heads and edges of a model by an explanation method, and score the ranking against what is known.

Inputs are ranked and scored for each sample. Heads and edges have one truth for all samples, so their scores are
averaged over the samples before they are ranked. The scores of one method on one model with one seed are a cell,
which is stored in one JSON file:

    DIR/results/KIND/MODEL/METHOD-seed-N-DIGEST.json

The digest covers the parameters of the model, the known answer, the source code of the method and of this module,
the number of samples and the version of Regard. Cells whose file exists are not measured again.
"""

import hashlib
import importlib.util
import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from regard.errors import InputError, unknown_choice
from regard.interpret.attribution.methods import METHODS, average, known_method, library_method, run_method
from regard.interpret.attribution.trial import LEVELS, Background, Level, Trial
from regard.io import is_file, make_folder, read_json, refuse_links, write_json
from regard.plugins import PluginError, check_loaded, code_digest, describe_error, import_plugin, plugin_imports
from regard.statistics import auroc
from regard.streams import derive_seed
from regard.training.run_folder import digest_tensors
from regard.version import __version__
from regard.viz.subject import ProbeInput
from regard_lab.bench.known_models import KnownModel

# The choice of explanation methods: names of Regard's methods, and methods of a user.

ORACLE, RANDOM = "oracle", "random"  # Two rankings of the bench itself: the truth, and chance
ALL = "all"
Choice = str | Callable[[Any], Any]


class ChosenMethod(NamedTuple):
    """One method of a bench."""

    name: str
    text: str | None  # the choice as text, from which another process loads the method; None: a Python object
    method: Choice  # as `regard.attribute` takes it
    digest: str  # of the version of Regard and of the method's source code


def choose_methods(choices: Choice | Sequence[Choice] = ALL) -> list[ChosenMethod]:
    """Return the chosen methods, after the oracle and the random ranking, each once. A choice is "all", a name, several
    names separated by commas, a method of another library such as `captum:Occlusion`, a Python file, `module:function`,
    or a function. All public functions that a file defines are methods. A file or a module is imported only because the
    choice names it."""
    texts: list[Choice] = [ORACLE, RANDOM]
    for choice in [choices] if isinstance(choices, str) or callable(choices) else choices:
        names = choice.split(",") if isinstance(choice, str) else [choice]
        texts += [name for part in names for name in (METHODS if part == ALL else [part])]
    chosen = [method for text in texts for method in _load(text)]
    names_seen: dict[str, ChosenMethod] = {}
    for method in chosen:
        if names_seen.setdefault(method.name, method).method != method.method:
            raise InputError(f"two methods have the name {method.name!r}: rename one of the functions")
    return list(names_seen.values())


def reload_method(text: str, name: str) -> ChosenMethod:
    return next(method for method in _load(text) if method.name == name)


def _load(choice: Choice) -> list[ChosenMethod]:
    if not isinstance(choice, str):
        return [ChosenMethod(getattr(choice, "__name__", repr(choice)), None, choice, "")]
    if choice in (ORACLE, RANDOM):
        return [ChosenMethod(choice, choice, choice, __version__)]
    if choice in METHODS:
        return [ChosenMethod(choice, choice, choice, _source_digest(*METHODS[choice].functions.values()))]
    if choice.endswith(".py"):
        path = Path(choice).resolve()
        functions, digest = _load_file(path), f"{__version__} {code_digest(path)}"
        check_loaded(path)  # the process may have loaded the file long ago
    elif library_method(choice):
        return [ChosenMethod(choice, choice, choice, _source_digest(library_method))]
    elif ":" in choice:
        function = import_plugin("explanation method", choice)
        if not callable(function):
            raise PluginError(f"explanation method {choice!r} is not a function: name a function of the module")
        functions, digest = [function], _source_digest(function)
    else:
        known = (*METHODS, ORACLE, RANDOM)
        raise unknown_choice("explanation method", choice, known, other="a Python file or module:function")
    return [ChosenMethod(function.__name__, choice, function, digest) for function in functions]


@cache
def _load_file(path: Path) -> list[Callable[..., Any]]:
    """Execute a file, once in a process, and return its public functions."""
    if not is_file(path):
        raise PluginError(f"file {str(path)!r} of explanation methods does not exist: give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"regard_methods_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where `inspect.getsource` looks for the file
    try:
        with plugin_imports(path.parent, spec.name):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file can fail in any way
        raise PluginError(f"file {str(path)!r} failed: {describe_error(error)}; fix the file") from error
    functions: list[Callable[..., Any]] = [
        value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    if not functions:
        raise PluginError(f"file {str(path)!r} defines no public function: define one that takes a trial")
    return functions


def _source_digest(*functions: Callable[..., Any]) -> str:
    files = sorted({inspect.getfile(inspect.unwrap(function)) for function in functions})
    return " ".join([__version__, *(code_digest(Path(file)) for file in files)])


# Score a ranking against a known answer: area under the ROC curve (AUROC).
#
# AUROC is the probability that a ranking places a true item above a false one, where a tie counts one half
# (Hanley and McNeil 1982). 1 is a perfect ranking, 0.5 that of chance, 0 a reversed ranking.

Truths = Mapping[str, Mapping[str, Sequence[bool | None]]]
"""For each kind of truth and each layer, one value per head; None where the truth is not defined."""


def score_inputs(scores: np.ndarray, truth: np.ndarray, candidates: np.ndarray | None = None) -> float | None:
    """Return the mean over output steps of the AUROC over input steps; `scores` and `truth` are (Tq, Tk).

    `candidates`: (Tq, Tk) bool, the inputs that are ranked for each output step; None: all. Output steps whose
    candidates are all true or all false are left out; the result is None if no step is left.

    >>> score_inputs(np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[False, True], [True, True]]))
    1.0
    """
    ranked = np.ones(truth.shape, dtype=bool) if candidates is None else candidates
    steps = [auroc(row[chosen], known[chosen]) for row, known, chosen in zip(scores, truth, ranked, strict=True)]
    values = [value for value in steps if value is not None]
    return float(np.mean(values)) if values else None


def score_heads(scores: Mapping[str, np.ndarray], truth: Mapping[str, Sequence[bool | None]]) -> float | None:
    """Return the AUROC over all heads of the layers in `scores`. Heads without a known truth are left out.

    >>> score_heads({"cross": np.array([2.0, 1.0])}, {"cross": (True, False)})
    1.0
    """
    pairs = [
        (float(score), known)
        for layer, values in scores.items()
        for score, known in zip(values, truth.get(layer, (None,) * len(values)), strict=True)
        if known is not None
    ]
    if not pairs:
        return None
    values, known = zip(*pairs, strict=True)
    return auroc(np.array(values), np.array(known))


def score_edges(scores: Mapping[tuple[str, str], float], edges: frozenset[tuple[str, str]]) -> float | None:
    return auroc(np.array(list(scores.values())), np.array([edge in edges for edge in scores]))


def merge_truths(truths: Truths) -> dict[str, Mapping[str, Sequence[bool | None]]]:
    """Merge kinds of truth that agree on all heads; the name of a merged kind lists them.

    >>> same = {"cross": (True, False)}
    >>> list(merge_truths({"needed": same, "used": {"cross": (True, True)}, "sufficient": same}))
    ['needed, sufficient', 'used']
    """
    merged: dict[str, tuple[list[str], Mapping[str, Sequence[bool | None]]]] = {}
    for name, truth in truths.items():
        key = repr(sorted((layer, tuple(values)) for layer, values in truth.items()))
        merged.setdefault(key, ([], truth))[0].append(name)
    return {", ".join(names): truth for names, truth in merged.values()}


FAILURE = 0.75  # AUROC below which a method fails on a model
RIGHT = 0.95  # AUROC from which a method is right on a trap
DRAWS = 1000  # Number of random rankings over which the score of chance is averaged, so that it is 0.50 within 0.02
SHOWN_EDGES = 10  # Number of misplaced edges that are stored for a failure
KNOWN_INPUTS = "relevant"  # Name of the only truth about inputs


class AurocScore(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How well a method ranks for one kind of truth."""

    level: Level
    truth: str
    values: list[float]
    """AUROC of each sample for inputs, in the order of the samples; one AUROC for heads and for edges."""
    seconds: float = 0.0  # CPU time of the rankings at this level in seconds
    worst: dict[str, Any] | None = None
    """The ranking and the truth of the sample with the lowest AUROC, if the mean is below `FAILURE`."""


class LevelError(InputError):
    """A method has no scores at a level."""


@dataclass(frozen=True)
class Subjects:
    """A model whose answer is known, the inputs on which methods are measured, and other inputs for means."""

    known: KnownModel
    inputs: Sequence[Any]
    background: Background[Any]

    @cached_property
    def answered(self) -> list[int]:
        probes = map(self.known.subject.trial, self.inputs)
        return [index for index, probe in enumerate(probes) if probe is not None and probe.steps != []]

    def mean_scores(self, method: ChosenMethod, level: Level) -> Any:
        return average([self.scores(method, index, level) for index in self.answered])

    def scores(self, method: ChosenMethod, index: int, level: Level) -> Any:
        """Return the scores of a method for an input: an array for inputs, otherwise a dictionary."""
        function = method.method
        if isinstance(function, str):
            known = known_method(function)
            if known is None or level not in known.levels:
                raise LevelError(f"method {function} has no scores of {level}")
            function = known.functions[level]
            return run_method(function, self._trial(index, level))
        try:
            return run_method(_only(level, function), self._trial(index, level))
        except InputError as error:
            raise (error if isinstance(error, LevelError) else PluginError(f"method {method.name}: {error}")) from error
        except Exception as error:  # a user's function can fail in any way
            raise PluginError(
                f"method {method.name} fails on {self.known.name}: {describe_error(error)}; fix the function"
            ) from error

    def _trial(self, index: int, level: Level) -> Trial[Any]:
        known = self.known
        return Trial(known.subject, self.inputs[index], level, seed=known.seed, background=self.background)


def _only(level: Level, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a user's function that raises `LevelError` if its result belongs to another level."""

    def run(trial: Trial[Any]) -> Any:
        scores = function(trial)
        kind = "inputs"
        if isinstance(scores, Mapping):
            kind = "edges" if any(isinstance(name, tuple) for name in scores) else "heads"
        if kind != level:
            raise LevelError(f"the method returns scores of {kind}")
        return scores

    return run


def known_inputs(known: KnownModel, probe: ProbeInput) -> np.ndarray | None:
    """Return the inputs (Tq, Tk) bool on which each output depends, or None if they are not known. For a circuit, these
    are the inputs whose change can change the output; for a learned model, the relevance that its task defines."""
    if known.circuit is None:
        return probe.relevant
    assert probe.tokens is not None, "a model with a circuit has tokens"
    relevant: np.ndarray = np.asarray(known.circuit.inputs(probe.tokens), dtype=bool)
    return relevant


def _candidates(known: KnownModel, probe: ProbeInput, shape: tuple[int, ...]) -> np.ndarray:
    """Return the inputs (Tq, Tk) bool that are ranked for each output: those that another token can replace. Left out
    are the end of a source, the additional first step of a compiled model, and in a causal model later inputs."""
    candidates: np.ndarray = np.ones(shape, dtype=bool)
    if probe.causal:
        candidates = np.tril(candidates)
    if probe.tokens is not None:
        candidates[:, ~np.isin(probe.tokens.cpu().numpy(), list(probe.alphabet))] = False
        if known.circuit is not None and known.family != "encoder-decoder":
            candidates[:, 0] = False
    return candidates


def rank_inputs(subjects: Subjects, method: ChosenMethod) -> list[AurocScore]:
    """Return the scores of a method's rankings of inputs, one value per sample; empty if nothing is known."""
    known, values = subjects.known, list[float]()
    worst: dict[str, Any] | None = None
    for index, input in enumerate(subjects.inputs):
        probe = known.subject.trial(input)
        truth = None if probe is None else known_inputs(known, probe)
        if probe is None or truth is None:
            continue
        candidates = _candidates(known, probe, truth.shape)
        if score_inputs(truth, truth, candidates) is None:
            continue
        if method.name == RANDOM:
            random, scores = _stream(known, index), truth
            rows = [row[chosen] for row, chosen in zip(truth, candidates, strict=True)]
            value = float(np.mean([chance for row in rows if (chance := _chance(row, random)) is not None]))
        else:
            scores = truth if method.name == ORACLE else subjects.scores(method, index, "inputs")
            value = _checked(score_inputs, scores, truth, candidates, method=method)
        values.append(round(value, 6))
        if worst is None or value < worst["auroc"]:
            worst = {
                "sample": index,
                "auroc": round(value, 6),
                "scores": _rounded(np.asarray(scores, dtype=np.float64)),
                "truth": truth.astype(int).tolist(),
            }
    if not values:
        return []
    fails = float(np.mean(values)) < FAILURE and method.name != RANDOM
    return [AurocScore(level="inputs", truth=KNOWN_INPUTS, values=values, worst=worst if fails else None)]


def rank_heads(subjects: Subjects, method: ChosenMethod) -> list[AurocScore]:
    """Return the scores of a method's ranking of heads, for each kind of truth about heads."""
    known = subjects.known
    if known.circuit is None:
        return []
    circuit = known.circuit
    truths = merge_truths({"needed": circuit.needed, "used": circuit.used, "sufficient": circuit.sufficient})
    truths = {name: truth for name, truth in truths.items() if score_heads(_as_scores(truth), truth) is not None}
    if not truths:
        return []
    scores: Mapping[str, np.ndarray] = {}
    if method.name not in (ORACLE, RANDOM):
        scores = subjects.mean_scores(method, "heads")
    rankings = []
    for name, truth in truths.items():
        worst = None
        if method.name == RANDOM:
            heads = [value for values in truth.values() for value in values if value is not None]
            value = _chance(np.array(heads), _stream(known, name))
            assert value is not None, "the truth has both classes"
        else:
            ranked = _as_scores(truth) if method.name == ORACLE else scores
            value = round(_checked(score_heads, ranked, truth, method=method), 6)
            if value < FAILURE:
                worst = {"scores": {layer: _rounded(part) for layer, part in ranked.items()}, "auroc": value}
        rankings.append(AurocScore(level="heads", truth=name, values=[value], worst=worst))
    return rankings


def rank_edges(subjects: Subjects, method: ChosenMethod) -> list[AurocScore]:
    known = subjects.known
    if known.circuit is None or not known.circuit.edges:
        return []
    edges, worst = known.circuit.edges, None
    value = 1.0
    if method.name == RANDOM:
        # As many false as true edges, because their number has no effect on the mean.
        chance = _chance(np.arange(2 * len(edges)) < len(edges), _stream(known, "edges"))
        assert chance is not None
        value = chance
    elif method.name != ORACLE:
        scores = subjects.mean_scores(method, "edges")
        value = round(_checked(score_edges, scores, edges, method=method), 6)
        ranked = sorted(scores, key=lambda edge: -scores[edge])
        if value < FAILURE:
            worst = {
                "auroc": value,
                "high": [[*edge, scores[edge]] for edge in ranked if edge not in edges][:SHOWN_EDGES],
                "low": [[*edge, scores[edge]] for edge in reversed(ranked) if edge in edges][:SHOWN_EDGES],
            }
    return [AurocScore(level="edges", truth="used", values=[value], worst=worst)]


def _checked(score: Callable[..., float | None], *arguments: Any, method: ChosenMethod, **options: Any) -> float:
    """Return a score."""
    try:
        value = score(*arguments, **options)
    except ValueError as error:
        raise PluginError(f"method {method.name} returns numbers that cannot be ranked: {error}") from error
    assert value is not None, "the caller checked that the truth has both classes"
    return value


def _as_scores(truth: Mapping[str, Sequence[bool | None]]) -> dict[str, np.ndarray]:
    return {layer: np.array([float(bool(value)) for value in values]) for layer, values in truth.items()}


def _stream(known: KnownModel, part: object) -> np.random.Generator:
    return np.random.default_rng(derive_seed(known.seed, f"bench/{known.name}/{part}"))


def _chance(truth: np.ndarray, random: np.random.Generator) -> float | None:
    """Return the mean AUROC of random rankings for truth (N,), or None if the truth has one class only."""
    truth = np.asarray(truth, dtype=bool)
    positive, negative = int(truth.sum()), int((~truth).sum())
    if not positive or not negative:
        return None
    ranks = random.random((DRAWS, len(truth))).argsort(1).argsort(1) + 1
    wins = ranks[:, truth].sum(1) - positive * (positive + 1) / 2
    return float(wins.mean() / (positive * negative))


def _rounded(values: np.ndarray) -> list[Any]:
    rounded: list[Any] = np.vectorize(lambda value: float(f"{value:.6g}"))(values).tolist()
    return rounded


LARGEST = 1 << 22  # Maximum size of a file, in bytes


class Cell(msgspec.Struct, forbid_unknown_fields=True):
    """The measurements of one method on one model with one seed."""

    method: str
    model: str
    kind: str
    family: str
    seed: int
    samples: int
    scores: list[AurocScore]
    left_out: dict[str, str]  # Levels that the method cannot rank on this model, with the reason


def draw_inputs(known: KnownModel, samples: int) -> Subjects:
    known.subject.model.eval()
    inputs = known.subject.unseen(samples, known.seed, purpose="bench")
    return Subjects(known, inputs, Background(known.subject, seed=known.seed))


def measure_cell(subjects: Subjects, method: ChosenMethod) -> Cell:
    measured: list[AurocScore] = []
    left_out: dict[str, str] = {}
    known = subjects.known
    rank = {"inputs": rank_inputs, "heads": rank_heads, "edges": rank_edges}
    for level in LEVELS:
        began = time.process_time()
        try:
            scores = rank[level](subjects, method)
        except LevelError:
            continue
        except PluginError:  # a user's method that fails is an error, and not a level without scores
            raise
        except InputError as error:
            left_out[level] = str(error)
            continue
        for score in scores:
            score.seconds = round(time.process_time() - began, 3)
        measured += scores
    model = (known.name, known.kind, known.family, known.seed)
    return Cell(method.name, *model, len(subjects.inputs), measured, left_out)


def read_or_measure(subjects: Subjects, method: ChosenMethod, folder: Path) -> Cell:
    """Return the stored cell of a method on a model, or measure and store it."""
    path = cell_path(subjects, method, folder)
    if is_file(path):
        return read_json(path, Cell, "delete it to measure again", most=LARGEST, finite=False)
    cell = measure_cell(subjects, method)
    refuse_links(path.parent, below=folder)
    make_folder(path.parent)
    write_json(path, msgspec.to_builtins(cell), indent=1)
    return cell


def cell_path(subjects: Subjects, method: ChosenMethod, folder: Path) -> Path:
    known, samples = subjects.known, len(subjects.inputs)
    weights = digest_tensors(known.subject.model.state_dict())
    circuit = known.circuit
    answer = None
    if circuit is not None:
        heads = [sorted(truth.items()) for truth in (circuit.needed, circuit.used, circuit.sufficient)]
        answer = [*heads, sorted(circuit.edges)]
    code = inspect.getsource(sys.modules[__name__])
    content = "\0".join([__version__, code, weights, repr(answer), method.digest, str(samples)])
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    name = method.name.replace(":", "-")  # Windows does not permit a colon
    return folder / "results" / known.kind / known.name / f"{name}-seed-{known.seed}-{digest}.json"
