"""What a learner's function or class answers to an exercise's cases: asked in the process that runs his code.

Nothing is judged here. What comes back is plain: numbers, lines of text.
"""

import contextlib
import inspect
import linecache
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.course.arrays import Flavour, flavours_of, given, taken, torch_of
from regard.course.exercises import Case, Exercise
from regard.course.exercises.exercise import Array
from regard.course.likeness import agree
from regard.course.weight_copying import Copied, copy_weights, weights_of
from regard.course.weight_matching import Reading, parameters_of, readings

LINES = 3
"""Lines of the learner's own that an error shows, the last ones."""
READINGS = 4
"""Readings of parameters of which all answers are told, where none is right."""
CALLED = {
    "width": (
        "width",
        "d_model",
        "dim",
        "embed_dim",
        "n_embd",
        "num_hiddens",
        "size",
        "model_dim",
        "hidden",
        "hidden_size",
        "d",
        "dmodel",
    ),
    "heads": ("heads", "num_heads", "n_heads", "nhead", "h", "n_head", "nheads", "num_attention_heads"),
    "inner": ("inner", "d_ff", "dff", "dim_feedforward", "hidden_dim", "ff", "ffn_dim", "d_inner", "inner_dim"),
    "layers": ("layers", "num_layers", "n_layers", "n", "depth", "num_encoder_layers", "num_decoder_layers"),
    "source_size": ("source_size", "src_vocab", "src_vocab_size", "source_vocab", "source_vocabulary", "n_src"),
    "target_size": ("target_size", "tgt_vocab", "tgt_vocab_size", "trg_vocab_size", "target_vocab", "n_tgt"),
}
"""How learners call a constructor's arguments."""
Answer = dict[str, Any]
Note = tuple[bool, str]
"""Whether it is a fault, and the words."""


AGAIN = (
    "two calls with the same input answer differently: is dropout always on? Give it "
    "training=self.training, or take "
    "nn.Dropout, which eval() turns off"
)


def answers_of(
    exercise: Exercise,
    thing: Any,
    cases: Sequence[Case],
    right: Sequence[Array],
    told: Callable[[Answer], None],
    watch: contextlib.AbstractContextManager[Any] | None = None,
) -> None:
    """Ask everything, and tell each answer: `{"reading": 0, "case": 0, "outputs": [...]}` or an error.

    `right`: what the first case's outputs should be; where parameters can be read in several ways, or arrays may
    be NumPy's or PyTorch's, the first way that gives them is taken.
    `watch`: a context in which the first case is asked.
    """
    ways = [
        (flavour, reading) for flavour in flavours_of(thing) for reading in _readings(exercise, thing, cases[0])
    ]
    tried: list[tuple[Answer, tuple[Flavour, Reading]]] = []
    for way in ways:
        with watch or contextlib.nullcontext():
            answer = ask(exercise, thing, cases[0], *way)
        if "outputs" in answer and agree(cases[0], _arrays(answer), right):
            tried = [(answer, way)]
            break
        tried.append((answer, way))
    answering = [each for each in tried if "outputs" in each[0]] or tried[:1]
    for number, (first, way) in enumerate(answering[:READINGS]):
        told({**first, "reading": number, "case": 0})
        for place, case in enumerate(cases[1:], 1):
            told({**ask(exercise, thing, case, *way), "reading": number, "case": place})


def _readings(exercise: Exercise, thing: Any, case: Case) -> list[Reading]:
    if not isinstance(thing, type) or not weights_of(exercise, case):
        return [Reading()]
    try:
        parameters = parameters_of(shaped(exercise, thing, case))
    except Exception:
        return [Reading()]
    letters = any(name.split(".")[-1] == "w_q" for name in weights_of(exercise, case))
    return readings(parameters, case.sizes["width"], case.sizes.get("heads", 1), letters)


def ask(exercise: Exercise, thing: Any, case: Case, flavour: Flavour, reading: Reading) -> Answer:
    """Return what the learner's code answers to one case: outputs, slopes and notes, or an error with his
    lines.
    """
    torch = torch_of()
    if torch is not None:
        torch.manual_seed(0)
    if case.plain and isinstance(thing, type):
        return {"skipped": True}
    try:
        if exercise.watch is not None:
            return _told(exercise.watch(thing, case), {}, [])
        return _asked(exercise, thing, case, flavour, reading)
    except (MemoryError, EOFError):
        raise
    except NotImplementedError:
        return {"begun": False, "error": "raises NotImplementedError", "lines": []}
    except Exception as error:
        if "allocate memory" in str(error):
            raise MemoryError from error
        return {"error": one_line(error), "lines": own_lines(error, _home(thing))}


def _asked(exercise: Exercise, thing: Any, case: Case, flavour: Flavour, reading: Reading) -> Answer:
    leaf = bool(case.slopes) and flavour == "torch"
    function, copied = thing, Copied()
    if isinstance(thing, type):
        function = shaped(exercise, thing, case)
        weights = weights_of(exercise, case)
        if weights:
            size, heads = case.sizes["width"], case.sizes.get("heads", 1)
            copied = copy_weights(weights, function, size, heads, reading)
    wanted = case.arguments if function is thing else _without(case.arguments, exercise.held)
    arguments = {name: given(value, flavour, leaf) for name, value in wanted.items()}
    found = called(function, arguments)
    outputs = taken(found, len(exercise.outputs))
    notes = _notes(exercise, copied, wanted, arguments)
    again = taken(called(function, {name: given(value, flavour) for name, value in wanted.items()}), len(outputs))
    if again[0].shape == outputs[0].shape and not np.allclose(again[0], outputs[0], equal_nan=True):
        notes.append((True, AGAIN))
    slopes = _slopes(exercise, case, found, arguments, function, copied) if leaf else {}
    return _told(outputs, slopes, notes)


def _told(outputs: Sequence[Array], slopes: dict[str, Any], notes: list[Note]) -> Answer:
    return {
        "outputs": [{"shape": list(each.shape), "data": each.reshape(-1).tolist()} for each in outputs],
        "slopes": slopes,
        "notes": notes,
    }


def _arrays(answer: Answer) -> list[Array]:
    return [np.array(each["data"], float).reshape(each["shape"]) for each in answer["outputs"]]


def _without(arguments: Mapping[str, Any], held: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in held}


def built(exercise: Exercise, thing: type, case: Case) -> Any:
    """Return an instance of the learner's class, of the case's sizes, as it is when it does not learn."""
    needed = [
        each
        for each in inspect.signature(thing).parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY, each.KEYWORD_ONLY)
    ]
    chosen: dict[str, int] = {}
    free = [name for name in exercise.builds if name in case.sizes]
    for each in needed:
        meant = next((n for n in free if each.name.lower() in CALLED.get(n, (n,))), None)
        if meant is not None:
            chosen[each.name] = case.sizes[meant]
            free.remove(meant)
    for each in needed:
        if each.name not in chosen and each.default is each.empty and free:
            chosen[each.name] = case.sizes[free.pop(0)]
    made = thing(**chosen)
    if hasattr(made, "eval"):
        made.eval()
    return made


def shaped(exercise: Exercise, thing: type, case: Case) -> Any:
    """Return an instance whose parameters have shapes, which lazy layers only learn from an input."""
    made, torch = built(exercise, thing, case), torch_of()
    if torch is not None and isinstance(made, torch.nn.Module):
        lazy = torch.nn.parameter.UninitializedTensorMixin
        if any(isinstance(each, lazy) for each in made.parameters()):
            inputs = _without(case.arguments, exercise.held)
            called(made, {name: given(value, "torch") for name, value in inputs.items()})
    return made


def called(function: Any, arguments: Mapping[str, Any]) -> Any:
    """Return what a function gives for arguments in their order; a mask it has no room for is left out."""
    values = list(arguments.values())
    target = function
    if not callable(function) and hasattr(function, "forward"):
        target = function.forward
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(getattr(function, "forward", target))
        names = list(arguments)
        while names and "mask" in names[-1]:
            try:
                signature.bind(*values)
                break
            except TypeError:
                names.pop()
                values.pop()
        else:
            values = list(arguments.values()) if not _binds(signature, values) else values
    return target(*values)


def _binds(signature: inspect.Signature, values: Sequence[Any]) -> bool:
    try:
        signature.bind(*values)
    except TypeError:
        return False
    return True


def _notes(
    exercise: Exercise, copied: Copied, wanted: Mapping[str, Any], arguments: Mapping[str, Any]
) -> list[Note]:
    """Return what else there is to say of a call."""
    notes: list[Note] = []
    if copied.hidden:
        hidden = (
            f"{', '.join(copied.hidden)} is a plain list of modules, which PyTorch does not see: their"
            f" weights would "
            "never be trained. Make it nn.ModuleList"
        )
        notes.append((True, hidden))
    elif copied.missing:
        lacking = ", ".join(copied.missing)
        notes.append(
            (False, f"your class has no place for {lacking}: forgotten, or of another shape than in the stub?")
        )
    if copied.left and not copied.hidden:
        notes.append(
            (False, f"nothing was copied to {', '.join(copied.left)}, which this exercise does not have")
        )
    for name, value in wanted.items():
        if isinstance(value, np.ndarray):
            now = arguments[name]
            after = now.detach().numpy() if hasattr(now, "detach") else now
            if after.shape != value.shape or not np.allclose(after, value, rtol=1e-5, atol=1e-6, equal_nan=True):
                notes.append((False, f"{name} is changed in place: your caller has lost it; work on a copy"))
    return notes


def _slopes(
    exercise: Exercise, case: Case, found: Any, arguments: Any, function: Any, copied: Copied
) -> dict[str, Any]:
    """Return the slope by each argument, None where no gradient comes to it."""
    torch = torch_of()
    first = found[0] if isinstance(found, tuple | list) else found
    slopes: dict[str, Any] = dict.fromkeys(case.slopes)
    if not hasattr(first, "backward") or not first.requires_grad:
        return slopes
    pull = torch.tensor(case.pull(tuple(first.shape)), dtype=first.dtype)
    first.double().mul(pull.double()).sum().backward()
    directions = case.directions()
    held = {name: directions[name] for name in case.slopes if name not in arguments}
    for name in case.slopes:
        if name in arguments:
            slopes[name] = _along(arguments[name], directions[name])
    if held and isinstance(function, torch.nn.Module):
        slopes |= _slope_of_weights(exercise, case, held, function, copied)
    return slopes


def _along(value: Any, direction: Any) -> float | None:
    if isinstance(value, Mapping):
        found = [_along(each, direction[name]) for name, each in value.items()]
        known = [each for each in found if each is not None]
        return sum(known) if known else None
    if value.grad is None:
        return None
    return float((value.grad.double().numpy() * direction).sum())


def _slope_of_weights(
    exercise: Exercise, case: Case, held: dict[str, Any], module: Any, copied: Copied
) -> Answer:
    """Return the slope by the weights that a module holds: its own gradients, along the directions as it has
    them.
    """
    gradients = {name: each.grad for name, each in module.named_parameters()}
    nothing = {name: np.zeros_like(value) for name, value in weights_of(exercise, case).items()}
    found: Answer = {}
    for name, direction in held.items():
        whole = nothing | (dict(direction) if isinstance(direction, Mapping) else {name: direction})
        known = [
            float((gradients[each].double().numpy() * buffer).sum())
            for each, buffer in copied.buffers(whole).items()
            if gradients.get(each) is not None
        ]
        found[name] = sum(known) if known else None
    return found


def one_line(error: BaseException) -> str:
    """Return an error as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def own_lines(error: BaseException, home: Path) -> list[str]:
    """Return the learner's own lines of an error's traceback, those of his folder, the innermost last."""
    ours = str(Path(__file__).parent)
    own: deque[tuple[str, int, str]] = deque(maxlen=LINES)
    known: dict[str, bool] = {}
    step = error.__traceback__
    while step is not None:  # millions of frames, where a recursion without end had no limit
        code = step.tb_frame.f_code
        file = code.co_filename
        if file not in known:
            known[file] = file.startswith("<ip") or (Path(file).parent == home and not file.startswith(ours))
        if known[file]:
            own.append((file, step.tb_lineno, code.co_name))
        step = step.tb_next
    return [f"line {line}, in {name}: {linecache.getline(file, line).strip()}" for file, line, name in own]


def _home(thing: Any) -> Path:
    try:
        return Path(inspect.getfile(thing)).parent
    except TypeError:
        return Path.cwd()
