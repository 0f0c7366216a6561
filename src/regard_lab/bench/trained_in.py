"""Ordinary Transformers that are trained to follow a compiled program (strict interchange intervention training).

The model has the layers and heads of the compiled model, layer normalization, and its own width. Each step adds
three losses (Gupta et al. 2024, "InterpBench", section 3): cross-entropy of the answers; of the answers after an
interchange of a node of the circuit, as the compiled model gives them; and of the unchanged answers after an
interchange of nodes outside the circuit. Known are the inputs and the heads. The edges are not: training does not
fix by which path a node gets what it needs.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.io.reading import is_file
from regard.io.writing import make_folder, write_file, write_json
from regard.streams import derive_seed, make_generator
from regard.tasks.batch import IGNORE
from regard.training.tensor_file import digest_tensors, pack_tensors, read_tensors
from regard.version import __version__
from regard_lab.bench.interchange import (
    MARGIN,
    InterchangeAgreement,
    InterchangeNode,
    Texts,
    all_texts,
    answers_of,
    find_nodes,
    measure_agreement,
    run,
    run_interchanged,
    run_recorded,
)
from regard_lab.bench.known_models import KnownModel, ResistsError, run_compiled
from regard_lab.programs.compiler import Compiled, compile_program
from regard_lab.programs.library import PROGRAMS

TRAINED_IN = ("previous", "count", "induction", "histogram", "signal", "reverse", "copy")
"""Programs that are trained in."""
HEAD_WIDTH, BATCH, LR = 16, 128, 2e-3
STEPS, CHECK_EVERY = 3000, 250
"""Largest number of training steps; training ends at the first check that meets the bars."""
CHECK_PAIRS, TEST_PAIRS = 1000, 5000
INTERCHANGE, OUTSIDE = 0.99, 0.01
"""Bars: least interchange accuracy, and largest share of answers that a node outside the circuit changes."""


def trained_in_model(name: str, seed: int, folder: Path) -> KnownModel:
    """Return a model that follows a program, trained with `seed` if `folder` does not contain it.

    Raises `ResistsError` for a program that does not reach the bars, also from a stored attempt.
    """
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
        InterchangeNode(layer, head)
        for layer, values in used.items()
        for head, value in enumerate(values)
        if value
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
    """Return an untrained model with the layers and heads of the compiled model, and its options.

    stream: name of the random numbers.
    """
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
    """Train with Adam, and yield the number and the loss of each step.

    loss: function of the texts of one length, among which it draws.
    """
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
    """Train the model, and return the number of steps and the CPU time in seconds."""
    began, groups, name = time.process_time(), all_texts(compiled), compiled.program.name
    generator = make_generator(seed, f"trained-in/{name}/train")
    circuit = circuit_nodes(compiled)
    outside = [node for node in find_nodes(model) if node not in circuit]

    def loss(group: Texts) -> Tensor:
        base, other = (draw_texts(group, generator) for _ in range(2))
        return _loss(compiled, model, base, other, (circuit, outside), generator)

    for step, _ in training_steps(model, groups, STEPS, generator, loss):
        if step % CHECK_EVERY == 0:
            checks = make_generator(seed, f"trained-in/{name}/check/{step}")
            agreement = measure_agreement(compiled, model.eval(), groups, circuit, CHECK_PAIRS, checks)
            model.train()
            if _meets_bars(agreement) and agreement.outside <= OUTSIDE / 2 and agreement.interchange >= 0.995:
                return step, time.process_time() - began
    return STEPS, time.process_time() - began


def _loss(
    compiled: Compiled,
    model: Any,
    base: Texts,
    other: Texts,
    nodes: tuple[Sequence[InterchangeNode], Sequence[InterchangeNode]],
    generator: torch.Generator,
) -> Tensor:
    """Return the sum of the three losses. The gradient flows through both runs, as in Geiger et al. 2022."""
    circuit, outside = nodes
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


def cross_entropy(logits: Tensor, answers: Tensor) -> Tensor:
    """Return the mean cross-entropy of the answers (N, T), 0 if there are none."""
    if (answers == IGNORE).all():
        return logits.sum() * 0.0
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten(), ignore_index=IGNORE)
