"""Models whose circuit is known, as subjects of explanation methods.

>>> known = compiled_model("reverse", seed=0)
>>> known.subject.attend("abc").prediction
'cba'
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.activations.components import find_components, replace_outputs
from regard.data.vocabulary import PAD
from regard.errors import RegardError, unknown_choice
from regard.io import is_file, make_folder, write_file, write_json
from regard.models.base import TaskModel
from regard.runs.loading import load
from regard.runs.run_types import AnyRun
from regard.runs.sequence_run import PairRun
from regard.runs.tensor_run import AnswerRun, LanguageRun
from regard.runs.training import train
from regard.streams import derive_seed, make_generator
from regard.tasks.batch import IGNORE
from regard.training.config import FLAGS, combine
from regard.training.run_folder import digest_tensors, pack_tensors, read_tensors
from regard.version import __version__
from regard_lab.programs.compiler import Circuit, Compiled, compile_program
from regard_lab.programs.language import Family
from regard_lab.programs.library import PROGRAMS
from regard_lab.programs.traps import TRAPS

Kind = Literal["compiled", "trained-in", "learned", "trap"]
RUNS: dict[Family, tuple[str, type[AnyRun]]] = {  # Name of the model and class of the run, by family
    "encoder": ("query", AnswerRun),
    "decoder-only": ("decoder", LanguageRun),
    "encoder-decoder": ("transformer", PairRun),
}


class KnownModel(NamedTuple):
    """A model whose answer to the question "what does it use?" is known."""

    name: str
    kind: Kind
    family: Family
    seed: int
    subject: AnyRun
    circuit: Circuit | None  # None for a learned model, of which only the relevant inputs are known


class ResistsError(RegardError):
    """Training did not make the model follow its program, so its circuit is not known."""


def run_compiled(compiled: Compiled, seed: int = 0) -> AnyRun:
    """Return a compiled model as a run in memory. Its folder does not exist, and it has no training history. `seed`: of
    the config, for untrained models of the same size."""
    program = compiled.program
    kind, run_class = RUNS[program.family]
    options: dict[str, Any] = {"vary_len": True} if program.family == "encoder" else {}  # all lengths are inputs
    parts = (compiled.task.config, compiled.config)
    options |= {name: getattr(part, name) for part in parts for name in part.__dataclass_fields__}
    use = kind if kind in FLAGS else "tokens"
    options_class = combine(program.name, kind, type(parts[0]), type(parts[1]), use)
    config: Any = options_class(seed=seed, **options).run_config()
    task_and_model: Any = (compiled.task, compiled.model)
    return run_class(Path(f"compiled:{program.name}"), config, 0, *task_and_model)


def compiled_model(name: str, seed: int) -> KnownModel:
    """Return a compiled program of `PROGRAMS`; `seed`: of the heads that it does not need."""
    compiled = compile_program(PROGRAMS[name], seed=seed)
    return KnownModel(name, "compiled", PROGRAMS[name].family, seed, run_compiled(compiled, seed), compiled.circuit)


def trap_model(name: str, seed: int) -> KnownModel:
    trap = TRAPS[name].build(seed)
    return KnownModel(name, "trap", trap.program.family, seed, run_compiled(trap, seed), trap.circuit)


# Ordinary Transformers that are trained to follow a compiled program (strict interchange intervention training).
#
# An interchange intervention gives a component of a model its output from a run on another input. A trained model
# follows a compiled program if, for every component, an interchange changes its answers as the same interchange
# changes those of the compiled model (Geiger et al. 2022, "Inducing Causal Structure for Interpretable Neural
# Networks", section 3). Components are heads and feed-forward layers, named alike in both models. A component
# outside the circuit changes no answer of the compiled model, so it must change none of the trained model
# (strictness: Gupta et al. 2024, "InterpBench", section 3).
#
# The model has the layers and heads of the compiled model, layer normalization, and its own width. Each step adds
# three losses (InterpBench, section 3): cross-entropy of the answers; of the answers after an interchange of a node
# of the circuit, as the compiled model gives them; and of the unchanged answers after an interchange of nodes
# outside the circuit. Known are the inputs and the heads. The edges are not: training does not fix by which path a
# node gets what it needs.

MARGIN = 3.0
"""Smallest difference of a compiled model's two largest logits at which its answer counts."""


class InterchangeNode(NamedTuple):
    """A head of an attention layer, or a feed-forward layer (head None)."""

    layer: str
    head: int | None


class Texts(NamedTuple):
    """All texts of one length: what the model reads, and the answers."""

    reads: tuple[Tensor, ...]  # (N, T) inputs; source and decoder input of an encoder-decoder
    answers: Tensor  # (N, Tq); IGNORE without an answer

    def pick(self, rows: Tensor) -> "Texts":
        return Texts(tuple(part[rows] for part in self.reads), self.answers[rows])


def all_texts(compiled: Compiled) -> list[Texts]:
    program, task = compiled.program, cast(Any, compiled.task)
    groups = []
    for length in range(1, program.longest + 1):
        texts = program.texts(length)
        if program.family == "encoder-decoder":
            pairs = [task.known(text) for text in texts]
            batch = task.batch(pairs)
            groups.append(Texts((batch.source, batch.target_in), batch.target.masked_fill(batch.target == PAD, IGNORE)))
        else:
            inputs = torch.cat([task.parse(text) for text in texts])
            groups.append(Texts((inputs,), task.answer(inputs)))
    return groups


def find_nodes(model: TaskModel) -> list[InterchangeNode]:
    components = find_components(model)
    heads = [
        InterchangeNode(layer, head) for layer, contexts in components.heads.items() for head in range(contexts.heads)
    ]
    return heads + [InterchangeNode(layer, None) for layer in components.feed_forward]


Outputs = dict[str, Tensor]
"""By name of the layer: contexts (N, Tq, H Dv) of its heads, or states (N, T, D) of a feed-forward layer."""
Masks = Mapping[InterchangeNode, Tensor]  # For each node: the rows (N,) bool that take its output from the other run


def run(model: TaskModel, texts: Texts) -> Tensor:
    if len(texts.reads) == 1:
        logits: Tensor = model(texts.reads[0])
        return logits
    source, target = texts.reads
    answers: Tensor = model(source, source != PAD, target)
    return answers


def run_recorded(model: TaskModel, texts: Texts) -> tuple[Tensor, Outputs]:
    outputs: Outputs = {}

    def keep(name: str, output: Tensor) -> Tensor:
        outputs[name] = output
        return output

    components = find_components(model)
    with components.replace_contexts(keep), replace_outputs(components.feed_forward, keep):
        return run(model, texts), outputs


def run_interchanged(model: TaskModel, texts: Texts, others: Outputs, masks: Masks) -> Tensor:
    """Return the logits if the nodes in `masks` take their outputs from another run."""
    components = find_components(model)

    def exchange(name: str, output: Tensor) -> Tensor:
        chosen = {node.head: rows for node, rows in masks.items() if node.layer == name}
        if not chosen:
            return output
        heads = components.heads[name].heads if name in components.heads else 1
        mask = torch.zeros(len(output), heads, dtype=torch.bool)
        for head, rows in chosen.items():
            mask[:, head or 0] = rows
        parts = (output.unflatten(-1, (heads, -1)), others[name].unflatten(-1, (heads, -1)))
        return torch.where(mask[:, None, :, None], parts[1], parts[0]).flatten(-2)

    with components.replace_contexts(exchange), replace_outputs(components.feed_forward, exchange):
        return run(model, texts)


def answers_of(compiled: Compiled, logits: Tensor, texts: Texts) -> Tensor:
    largest = logits.topk(2, -1)
    unclear = (largest.values[..., 0] - largest.values[..., 1] < MARGIN) | (texts.answers == IGNORE)
    return largest.indices[..., 0].masked_fill(unclear, IGNORE)


class InterchangeAgreement(NamedTuple):
    """How well a trained model follows a compiled program, over drawn pairs of texts."""

    accuracy: float  # fraction of answers that equal those of the program
    interchange: float  # lowest fraction of answers that agree after an interchange of a node in the circuit
    outside: float  # highest fraction of answers that an interchange of a node outside the circuit changes


@torch.no_grad()
def measure_agreement(
    compiled: Compiled,
    model: TaskModel,
    groups: Sequence[Texts],
    circuit: Sequence[InterchangeNode],
    pairs: int,
    generator: torch.Generator,
) -> InterchangeAgreement:
    """Return the agreement over `pairs` pairs of texts of equal length, drawn by their number, for each node."""
    total = sum(len(group.answers) for group in groups)
    right: dict[InterchangeNode, list[Tensor]] = {node: [] for node in find_nodes(model)}
    behaviour = []
    for group in groups:
        count = max(1, round(pairs * len(group.answers) / total))
        base, other = (group.pick(torch.randint(len(group.answers), (count,), generator=generator)) for _ in range(2))
        behaviour.append((run(model, base).argmax(-1) == base.answers)[base.answers != IGNORE])
        sources = {name: run_recorded(net, other)[1] for name, net in (("own", model), ("compiled", compiled.model))}
        everywhere = torch.ones(count, dtype=torch.bool)
        for node in right:
            masks = {node: everywhere}
            wanted = answers_of(compiled, run_interchanged(compiled.model, base, sources["compiled"], masks), base)
            answers = run_interchanged(model, base, sources["own"], masks).argmax(-1)
            right[node].append((answers == wanted)[wanted != IGNORE])
    means = {node: float(torch.cat(parts).double().mean()) for node, parts in right.items()}
    return InterchangeAgreement(
        accuracy=float(torch.cat(behaviour).double().mean()),
        interchange=min((means[node] for node in circuit), default=1.0),
        outside=max((1 - mean for node, mean in means.items() if node not in circuit), default=0.0),
    )


TRAINED_IN = ("previous", "count", "induction", "histogram", "signal", "reverse", "copy")
"""Programs that are trained in."""
HEAD_WIDTH, BATCH, LR = 16, 128, 2e-3
STEPS, CHECK_EVERY = 3000, 250  # Largest number of training steps; training ends at the first check that meets the bars
CHECK_PAIRS, TEST_PAIRS = 1000, 5000
INTERCHANGE, OUTSIDE = 0.99, 0.01
"""Bars: least interchange accuracy, and largest share of answers that a node outside the circuit changes."""


def trained_in_model(name: str, seed: int, folder: Path) -> KnownModel:
    """Return a model that follows a program, trained with `seed` if `folder` does not contain it. Raises `ResistsError`
    for a program that does not reach the bars, also from a stored attempt."""
    compiled = compile_program(PROGRAMS[name])
    path = folder / f"trained-in-{name}-seed-{seed}-{_digest(compiled)}.safetensors"
    report = path.with_suffix(".json")
    model, config = same_layers(compiled, seed, f"trained-in/{name}")
    if not is_file(report):
        steps, seconds = _train(compiled, model, seed)
        drawn = make_generator(seed, f"trained-in/{name}/test")
        groups, circuit = all_texts(compiled), circuit_nodes(compiled)
        agreement = measure_agreement(compiled, model.eval(), groups, circuit, TEST_PAIRS, drawn)
        make_folder(folder)
        write_file(path, pack_tensors(model.state_dict(), steps))
        write_json(report, {**agreement._asdict(), "steps": steps, "seconds": round(seconds, 1)})
    measured: dict[str, Any] = json.loads(report.read_text())
    agreement = InterchangeAgreement(*(measured[field] for field in InterchangeAgreement._fields))
    if not _meets_bars(agreement):
        raise ResistsError(
            f"after {measured['steps']} steps {agreement.accuracy:.2%} of answers are right, "
            f"{agreement.interchange:.2%} agree after an interchange in the circuit, and a node outside changes "
            f"{agreement.outside:.2%}"
        )
    model.load_state_dict(read_tensors(path).tensors)
    known = dataclasses.replace(compiled.circuit, edges=frozenset(), roles={}, sources={})
    trained = dataclasses.replace(compiled, model=model.eval(), config=config, circuit=known)
    family = compiled.program.family
    return KnownModel(name, "trained-in", family, seed, run_compiled(trained, seed), known)


def circuit_nodes(compiled: Compiled) -> list[InterchangeNode]:
    """Return the nodes of the circuit: heads whose output is used, and feed-forward layers at an edge."""
    used = compiled.circuit.used
    heads = [
        InterchangeNode(layer, head) for layer, values in used.items() for head, value in enumerate(values) if value
    ]
    ends = {node for edge in compiled.circuit.edges for node in edge}
    return heads + [node for node in find_nodes(compiled.model) if node.head is None and node.layer in ends]


def _meets_bars(agreement: InterchangeAgreement) -> bool:
    return min(agreement.interchange, agreement.accuracy) >= INTERCHANGE and agreement.outside <= OUTSIDE


def _digest(compiled: Compiled) -> str:
    settings = [HEAD_WIDTH, BATCH, LR, STEPS, CHECK_EVERY, CHECK_PAIRS, TEST_PAIRS, INTERCHANGE, OUTSIDE, MARGIN]
    program = digest_tensors(compiled.model.state_dict())
    return hashlib.sha256(repr([__version__, program, settings]).encode()).hexdigest()[:12]


def same_layers(compiled: Compiled, seed: int, stream: str) -> tuple[Any, Any]:
    """Return an untrained model like the compiled model, and its options. stream: name of the random numbers."""
    old: Any = compiled.config
    changes: dict[str, Any] = {"norm": "layer", "hidden": HEAD_WIDTH * old.heads}
    if hasattr(old, "inner"):
        changes["inner"] = 2 * HEAD_WIDTH * old.heads
    config, sizes = dataclasses.replace(old, **changes), dict[str, Any](compiled.task.sizes)
    with torch.random.fork_rng(devices=[]), torch.inference_mode(mode=False):
        torch.manual_seed(derive_seed(seed, f"{stream}/model"))
        return type(compiled.model)(config, **sizes), config


def training_steps(
    model: Any, groups: Sequence[Texts], steps: int, generator: torch.Generator, loss: Callable[[Texts], Tensor]
) -> Iterator[tuple[int, float]]:
    """Train with Adam, and yield the number and loss of each step. loss: of drawn texts of one length."""
    sizes = torch.tensor([float(len(group.answers)) for group in groups])
    optimizer = torch.optim.Adam(model.parameters(), LR, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=steps, pct_start=0.05)
    for step in range(1, steps + 1):
        group = groups[int(torch.multinomial(sizes.sqrt(), 1, generator=generator))]
        optimizer.zero_grad()
        total = loss(group)
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield step, total.item()


def draw_texts(group: Texts, generator: torch.Generator) -> Texts:
    return group.pick(torch.randint(len(group.answers), (BATCH,), generator=generator))


def _train(compiled: Compiled, model: Any, seed: int) -> tuple[int, float]:
    began, groups, name = time.process_time(), all_texts(compiled), compiled.program.name
    generator = make_generator(seed, f"trained-in/{name}/train")
    circuit = circuit_nodes(compiled)
    outside = [node for node in find_nodes(model) if node not in circuit]

    def loss(group: Texts) -> Tensor:
        """Return the sum of the three losses. The gradient flows through both runs, as in Geiger et al. 2022."""
        base, other = (draw_texts(group, generator) for _ in range(2))
        _, own = run_recorded(model, other)
        total = cross_entropy(run(model, base), base.answers)
        if circuit:
            chosen = torch.randint(len(circuit), (BATCH,), generator=generator)
            masks = {node: chosen == index for index, node in enumerate(circuit)}
            with torch.no_grad():
                _, theirs = run_recorded(compiled.model, other)
                wanted = answers_of(compiled, run_interchanged(compiled.model, base, theirs, masks), base)
            total = total + cross_entropy(run_interchanged(model, base, own, masks), wanted)
        if outside:
            drawn = torch.rand(len(outside), BATCH, generator=generator) < 0.5
            masks = dict(zip(outside, drawn, strict=True))
            total = total + cross_entropy(run_interchanged(model, base, own, masks), base.answers)
        return total

    for step, _ in training_steps(model, groups, STEPS, generator, loss):
        if step % CHECK_EVERY == 0:
            checks = make_generator(seed, f"trained-in/{name}/check/{step}")
            agreement = measure_agreement(compiled, model.eval(), groups, circuit, CHECK_PAIRS, checks)
            model.train()
            if _meets_bars(agreement) and agreement.outside <= OUTSIDE / 2 and agreement.interchange >= 0.995:
                return step, time.process_time() - began
    return STEPS, time.process_time() - began


def cross_entropy(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the mean cross-entropy of the answers (N, T), 0 if there are none."""
    if (answers == IGNORE).all():
        return logits.sum() * 0.0
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten(), ignore_index=IGNORE)


# Models that learn Regard's tasks, whose relevant inputs are known: trained once per seed and stored.
#
# What is known of a learned model is the relevance of its task: the inputs from which the right answer derives.
# Its heads and edges are not known. A task's relevance marks, for example, the letters that are counted; a
# changed letter that is not marked can change the answer too.


@dataclass(frozen=True)
class LearnedModel:
    """A task of Regard and the flags of its training."""

    task: str
    family: Family
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Flags of `regard train`; the defaults of the task apply to all others."""


# Flags with which a Transformer learns a reordering task in 10 to 20 s of CPU time.
SMALL_TRANSFORMER: dict[str, Any] = {
    "model": "transformer",
    "max_len": 8,
    "vocab_size": 8,
    "hidden": 64,
    "enc_layers": 1,
    "dec_layers": 1,
    "inner": 128,
    "steps": 800,
    "lr": 0.003,
}
# Learned models by name. All of them answer at least 95 % of unseen inputs of their task correctly.
LEARNED: dict[str, LearnedModel] = {
    "counting": LearnedModel("counting", "encoder"),
    "difference": LearnedModel("difference", "encoder", {"self_att": True}),
    "signal": LearnedModel("signal", "encoder", {"pos_enc": True}),
    "signal2": LearnedModel("signal2", "encoder"),
    "dates": LearnedModel("dates", "encoder-decoder", {"steps": 400}),
    "copy": LearnedModel("copy", "encoder-decoder", SMALL_TRANSFORMER),
    "reverse": LearnedModel("reverse", "encoder-decoder", {**SMALL_TRANSFORMER, "steps": 1500}),
    "sort": LearnedModel("sort", "encoder-decoder", {**SMALL_TRANSFORMER, "enc_layers": 2}),
    "induction": LearnedModel("induction", "decoder-only"),
    "mqar": LearnedModel("mqar", "decoder-only"),
    "dyck": LearnedModel("dyck", "decoder-only"),
}


def learned_model(name: str, seed: int, folder: Path) -> KnownModel:
    """Return a learned model, trained with `seed` if `folder` lacks it; an interrupted training continues."""
    spec = LEARNED[name]
    flags = {**spec.flags, "seed": seed}
    digest = hashlib.sha256(json.dumps([spec.task, flags], sort_keys=True).encode()).hexdigest()[:8]
    savepath = folder / f"{name}-seed-{seed}-{digest}"
    path = savepath / spec.task
    run = load(path) if (path / "config.json").exists() else None
    if run is None or run.step < run.config.training.steps:
        make_folder(savepath)
        run = train(spec.task, savepath=savepath, resume=run is not None, progress=False, **flags)
    return KnownModel(name=name, kind="learned", family=spec.family, seed=seed, subject=run, circuit=None)


ALL = "all"
NAMES: dict[Kind, Iterable[str]] = {  # Names of the models of each kind
    "compiled": PROGRAMS,
    "trap": TRAPS,
    "trained-in": TRAINED_IN,
    "learned": LEARNED,
}
QUICK = ("trained-in/previous", "learned/counting", "learned/difference", "learned/signal", "learned/induction")
"""Trained models of the quick bench, besides all compiled models and traps: those that train quickly. With five
seeds, two cores need about 10 minutes."""


@dataclass(frozen=True)
class KnownModelChoice:
    """One model of the bench, which is built when it is measured."""

    name: str
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    def build(self, seed: int, folder: Path) -> KnownModel:
        """Return the model; a model that is trained is stored in `folder`, and read from there if it exists."""
        if self.kind == "learned":
            return learned_model(self.name, seed, folder / "models")
        if self.kind == "trained-in":
            return trained_in_model(self.name, seed, folder / "models")
        return (trap_model if self.kind == "trap" else compiled_model)(self.name, seed)


def choose_models(choice: str | Sequence[str] | None = None, *, quick: bool = False) -> list[KnownModelChoice]:
    """Return the chosen models, each once. None: all models, or with `quick` all except most trained models.

    A choice is "all", a kind (compiled, trap, trained-in, learned), the name of a model, KIND/NAME, or several of these
    separated by commas. A name that several kinds have chooses all of them.

    >>> [str(model) for model in choose_models("learned/signal,dates")]
    ['learned/signal', 'learned/dates']
    """
    known = [KnownModelChoice(name, kind) for kind, names in NAMES.items() for name in names]
    if choice is None:
        return [model for model in known if not quick or model.kind in ("compiled", "trap") or str(model) in QUICK]
    texts = [text for part in ([choice] if isinstance(choice, str) else choice) for text in part.split(",")]
    chosen: dict[KnownModelChoice, None] = {}
    for text in texts:
        fitting = [model for model in known if text in (ALL, model.kind, model.name, str(model))]
        if not fitting:
            raise unknown_choice("model", text, [ALL, *NAMES, *dict.fromkeys(model.name for model in known)])
        chosen |= dict.fromkeys(fitting)
    return list(chosen)
