"""The cost of a mechanism beside softmax: step time, memory for the backward pass, parameters.

The model is that of the probe `text`. Step times of both models are measured in turns in one process, so that
other work on the machine affects both.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.io.reading import is_file, read_json
from regard.io.writing import make_folder, write_json
from regard.models.decoder_only import DecoderOnly
from regard.streams import make_generator
from regard.tasks.batch import TokenBatch
from regard_lab.cards.cells import LARGEST, code_digest, file_name
from regard_lab.cards.probe_training import BASELINE, build_model, mean_loss, one_thread
from regard_lab.cards.probes import PROBES

PROBE = "text"
ROUNDS = 40
"""Number of steps of each model whose time is measured."""
WARM_UP = 5
"""Number of steps of each model before these."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a mechanism, and that of softmax."""

    milliseconds: float
    """Median time of a training step without the optimizer, on one thread."""
    softmax_milliseconds: float
    """The same for softmax."""
    ratio: float
    """Median of the ratios of two successive steps, the mechanism's to softmax's."""
    memory: int
    """Bytes of the tensors that a training step keeps for the backward pass, without parameters."""
    softmax_memory: int
    """The same for softmax."""
    parameters: int
    softmax_parameters: int


def read_or_measure_cost(mechanism: str, folder: Path) -> Cost:
    """Return the stored cost of a mechanism, or measure and store it."""
    name = f"cost-{PROBES[PROBE].digest()}{code_digest(mechanism)}.json"
    path = folder / file_name(mechanism) / name
    if is_file(path):
        return read_json(path, Cost, "delete it to measure again", most=LARGEST)
    cost = measure_cost(mechanism)
    make_folder(path.parent)
    write_json(path, dataclasses.asdict(cost))
    return cost


def measure_cost(mechanism: str, rounds: int = ROUNDS) -> Cost:
    """Measure the cost of a mechanism beside softmax."""
    probe = PROBES[PROBE]
    with one_thread():
        task = probe.build_task()
        batch = task.sample(probe.batch, make_generator(0, "card/cost"))
        models = [build_model(text, probe, task, 0).train() for text in (mechanism, BASELINE)]
        memory = [_kept_bytes(model, batch) for model in models]
        times: list[list[float]] = [[], []]
        for number in range(-WARM_UP, rounds):
            for model, measured in zip(models, times, strict=True):
                seconds = _seconds(lambda model=model: _loss(model, batch).backward())  # type: ignore[misc]
                if number >= 0:
                    measured.append(seconds)
    parameters = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    return Cost(
        milliseconds=round(1000 * statistics.median(times[0]), 3),
        softmax_milliseconds=round(1000 * statistics.median(times[1]), 3),
        ratio=round(statistics.median(one / other for one, other in zip(*times, strict=True)), 3),
        memory=memory[0],
        softmax_memory=memory[1],
        parameters=parameters[0],
        softmax_parameters=parameters[1],
    )


def _loss(model: DecoderOnly, batch: TokenBatch) -> Tensor:
    model.zero_grad()
    return mean_loss(model, batch)


def _seconds(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _kept_bytes(model: DecoderOnly, batch: TokenBatch) -> int:
    """Return the size of all storages that autograd keeps for the backward pass, without parameters."""
    storages: dict[int, int] = {}
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = _loss(model, batch)
    total = sum(storages.values())
    del loss  # the graph keeps the storages alive until here, so no address is used twice
    return total
