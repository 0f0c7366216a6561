"""Build the model of a run and its initial training state."""

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.blocks import make_encoder_layer
from regard.attention.interventions import record_own
from regard.attention.layer import find_layer
from regard.attention.masks import causal_mask
from regard.attention.mechanism import Mechanism, PartChoice
from regard.attention.multihead import MultiHeadAttention, keep_heads
from regard.attention.names import short_name
from regard.attention.parts import Gate, LayerSizes, MaskPart, Normalizer, PositionBias, positions_of
from regard.attention.positions import make_positions
from regard.attention.scores import Score, make_score
from regard.data.batch import PairBatch, collate
from regard.errors import InputError
from regard.models.base import AnswerModel, LanguageModel, ModelConfig, Seq2Seq, TaskModel
from regard.plugins import PluginError, describe_error
from regard.progress import print_status
from regard.streams import make_generator
from regard.tasks.all_tasks import TASKS
from regard.tasks.base import AnyTask
from regard.tasks.batch import Batch, BatchContext, TokenBatch
from regard.training.checkpoint import Checkpoint, TrainingState, make_optimizer, trained_parameters
from regard.training.config import RunConfig
from regard.training.distributed import SINGLE_PROCESS, DistributedContext
from regard.training.objective import make_objective
from regard.training.run_folder import RunFolder, tensor_specs

# Freezing: parts of a model whose parameters are not trained.
#
# A part is a dotted name in the model, without the name of the list that contains the layers: `encoder`,
# `encoder.0`, `decoder.1.cross`. Modules of source and target with the same name form one part: `embedding`
# stands for `source_embedding` and `target_embedding`.

SIDES = ("source_", "target_")


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """Exclude the parameters of some parts from training, so that they have no gradient.

    Raises `InputError` for an unknown part, or if no trainable parameters remain.
    """
    named = dict(model.named_parameters())
    for part in parts:
        parameters = [
            parameter
            for name, parameter in named.items()
            if any(f"{alias}.".startswith(f"{part}.") for alias in (short_name(name), _without_side(short_name(name))))
        ]
        if not parameters:
            raise InputError(
                f"freeze {part!r}: the model has no part with this name; choose {', '.join(parts_of(model))}, "
                f"or a part of these parts"
            )
        for parameter in parameters:
            parameter.requires_grad_(False)
    if parts and not any(parameter.requires_grad for parameter in named.values()):
        raise InputError(f"freeze {' '.join(parts)} freezes the whole model: leave at least one part to train")


def parts_of(model: nn.Module) -> list[str]:
    """Return the parts of a model in the order of its modules, each part followed by its layers."""
    layers_of_part: dict[str, list[str]] = {}
    for name, _ in model.named_parameters():
        part, *inner = _without_side(short_name(name)).split(".")
        layers = layers_of_part.setdefault(part, [])
        if inner and inner[0].isdigit() and f"{part}.{inner[0]}" not in layers:
            layers.append(f"{part}.{inner[0]}")
    return [name for part, layers in layers_of_part.items() for name in (part, *layers)]


def _without_side(name: str) -> str:
    return next((name.removeprefix(side) for side in SIDES if name.startswith(side)), name)


# Checks of custom code: a score, part of the attention, layer, model or task that fails raises an error before
# training.
#
# Each part runs separately on small tensors, then the model runs the forward and backward pass for a batch of two
# samples. A check takes about as long as a training step, and does not change the random state. An error is one
# line, and is raised before files are written.

SAMPLES = 2  # Number of samples in the test batch
WIDTH = 8  # Width of the states for testing a score, positions or a layer
BATCH, HEADS, STEPS, HEAD_WIDTH, STATE_WIDTH = 2, 2, 5, 6, 14  # Sizes for testing a part of an attention mechanism


@contextmanager
def custom_code(failure: str, way_out: str = "fix it") -> Iterator[None]:
    """Convert an error of custom code in the block to a one-line error that begins with `failure`."""
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    except InputError:
        raise
    except Exception as error:  # custom code can raise anything
        raise PluginError(f"{failure}: {describe_error(error)}; {way_out}") from error


def _check_tensor(code: str, name: str, value: object, expected: tuple[int, ...]) -> Tensor:
    """Return a tensor. Raises `PluginError` for a value of another type or shape."""
    if not isinstance(value, Tensor):
        raise PluginError(f"{code} gives {name} of type {type(value).__name__}: expected a tensor {expected}")
    if tuple(value.shape) != expected:
        raise PluginError(f"{code} gives {name} of shape {tuple(value.shape)}: expected {expected}")
    return value


def check_custom_parts(model: ModelConfig) -> None:
    """Raise `PluginError` unless each custom score, positional encoding, layer and part of the attention works
    separately."""
    for choice in model.mechanism.choices:
        if ":" in choice.name:
            check_attention_part(choice)
    query, keys, states = torch.zeros(2, 3, 5, WIDTH), torch.zeros(2, 3, 7, WIDTH), torch.zeros(2, 5, WIDTH)
    if ":" in model.score:
        code = f"score {model.score!r}"
        failure = f"{code} fails on queries {tuple(query.shape)} and keys {tuple(keys.shape)}"
        with custom_code(failure, "its forward must accept queries and the result of its prepare"), torch.no_grad():
            score = make_score(model.score, WIDTH, WIDTH)
            scores = score(query, score.prepare(keys))
        _check_tensor(code, "scores", scores, (2, 3, 5, 7))
    if ":" in model.positions:
        code = f"positions {model.positions!r}"
        failure = f"{code} fails when it is called with states {tuple(states.shape)} and offset 2"
        with custom_code(failure), torch.no_grad():
            # A custom class is neither None nor joined.
            positions: Any = make_positions(model.positions, WIDTH, 7)
            moved = positions(states, 2)
        _check_tensor(code, "states", moved, tuple(states.shape))
    if ":" in model.layer:
        code, mask = f"layer {model.layer!r}", torch.ones(2, 1, 5, dtype=torch.bool)
        failure = f"{code} fails when it is called with states {tuple(states.shape)} and mask {tuple(mask.shape)}"
        with custom_code(failure), torch.no_grad():
            output = make_encoder_layer(model.layer, WIDTH, 2, 11)(states, mask)
        _check_tensor(code, "states", output, tuple(states.shape))


def check_attention_part(choice: PartChoice) -> None:
    """Raise `PluginError` unless a part accepts and returns tensors of the shapes that its base class documents."""
    code = f"attention part {choice.name!r}"
    if not choice.kinds:
        raise PluginError(f"{code} names no kind of layer in its kinds: name one or more")
    kind = choice.kinds[0]
    failure = f"{code} fails in a layer with {HEADS} heads of width {HEAD_WIDTH} on {STEPS} steps"

    def check_masked(weights: Tensor, mask: Tensor) -> None:
        """Raise `PluginError` unless weights are zero where the mask (Tq, Tk) is False."""
        if not (weights.masked_fill(mask, 0.0) == 0).all():
            raise PluginError(f"{code} gives masked keys a weight, or NaN in a fully masked row: give the weight 0")

    with custom_code(failure), torch.no_grad():
        torch.manual_seed(0)  # the same result at each call
        sizes = LayerSizes(width=STATE_WIDTH, memory_width=STATE_WIDTH, heads=HEADS, head_width=HEAD_WIDTH, kind=kind)
        part = choice.build(sizes)
        weights = (BATCH, HEADS, STEPS, STEPS)
        steps, states = positions_of(STEPS, STEPS, torch.device("cpu")), torch.zeros(BATCH, STEPS, STATE_WIDTH)
        heads, keys = (torch.randn(BATCH, HEADS, length, HEAD_WIDTH) for length in (STEPS, STEPS + 2))
        if isinstance(part, Score):
            if _check_tensor(code, "scores", part(heads, part.prepare(keys)), (*weights[:3], STEPS + 2)).isnan().any():
                raise PluginError(f"{code} gives NaN for random queries and keys")
        elif isinstance(part, MaskPart):
            allowed = _check_tensor(code, "mask", part.allowed(*steps), (STEPS, STEPS))
            if allowed.dtype != torch.bool:
                raise PluginError(f"{code} gives a mask of {allowed.dtype}: expected bool")
        elif isinstance(part, PositionBias):
            _check_tensor(code, "biases", part(*steps), (HEADS, STEPS, STEPS))
        elif isinstance(part, Normalizer):
            mask = causal_mask(STEPS, STEPS).tril(-1)  # row 0 is fully masked
            shares = _check_tensor(code, "weights", part(torch.randn(weights), mask[None, None]), weights)
            if part.normalized and not torch.allclose(shares[:, :, 1:].sum(-1), torch.tensor(1.0), atol=1e-4):
                raise PluginError(
                    f"{code} gives rows that do not sum to 1 over keys: divide, or set normalized = False"
                )
            check_masked(shares, mask)
        elif isinstance(part, Gate):
            _check_tensor(code, "context", part(heads, states), tuple(heads.shape))
        mechanism = Mechanism((choice,))
        layer = MultiHeadAttention(STATE_WIDTH, HEADS, head_width=HEAD_WIDTH, mechanism=mechanism, kind=kind).eval()
        states = torch.randn(BATCH, STEPS, STATE_WIDTH)

        def is_changed(outputs: Any, place: Any) -> bool:
            """Return whether some `outputs` of the layer change with the states at a place; noise is drawn again."""
            changed = states.clone()
            changed[place] += 1
            torch.manual_seed(0)
            return not torch.allclose(layer(changed)[outputs], output[outputs], atol=1e-4)

        torch.manual_seed(0)
        with record_own(layer) as records:
            output = layer(states)
        _check_tensor(code, "output of the layer", output, tuple(states.shape))
        [record] = records.values()
        recorded = _check_tensor(code, "weights", record.weights, weights)
        if kind == "causal":
            check_masked(recorded, causal_mask(STEPS, STEPS))
            if is_changed(np.s_[:, :-1], np.s_[:, -1]):
                raise PluginError(f"{code} reads later steps: in a causal layer, an output reads only earlier ones")
        if is_changed(0, 1):
            raise PluginError(f"{code} reads other samples of the batch: read each sample alone")
        with torch.enable_grad():
            layer(states).square().sum().backward()
        if still := [name for name, parameter in layer.named_parameters() if parameter.grad is None]:
            print_status(f"warning: {code} passes no gradient to {', '.join(still)}", show=True)


def _logits(code: str, config: RunConfig, task: AnyTask, model: TaskModel) -> Tensor:
    """Return the logits of a small batch, sampled by the task or, for a task with text, arbitrary."""
    device = next((parameter.device for parameter in model.parameters()), None)
    if device is None:
        raise PluginError(f"{code} has no parameters: there is nothing to train; wrap its tensors in nn.Parameter")
    if task.draws:
        settings = dataclasses.replace(config.training, batchsize=SAMPLES)
        batch = task.batches(settings, BatchContext(generator=torch.Generator().manual_seed(0))).draw(0)
    else:
        text = collate([[index] for index in range(SAMPLES)])
        batch = PairBatch(text, text)
    if isinstance(batch, Batch) and config.on not in TASKS:
        custom: Any = task
        outputs, classes = task.sizes["outputs"], task.sizes["classes"]
        _check_tensor(code, "answers", batch.targets, (SAMPLES, outputs))
        if batch.targets.dtype != torch.int64 or not ((batch.targets >= 0) & (batch.targets < classes)).all():
            raise PluginError(f"{code} gives answers that are not classes: expected int64 from 0 to {classes - 1}")
        _check_tensor(code, "relevance", custom.relevance(batch.inputs), (SAMPLES, outputs, batch.inputs.shape[1]))
        custom.render(batch.inputs[0])
    batch = batch.to(device)
    if isinstance(batch, Batch):
        assert isinstance(model, AnswerModel)
        expected = (SAMPLES, task.sizes["outputs"], task.sizes["classes"])
        return _check_tensor(code, "logits", model(batch.inputs, batch.mask), expected)
    if isinstance(batch, TokenBatch):
        assert isinstance(model, LanguageModel)
        expected = (*batch.targets.shape, task.sizes["symbols"])
        return _check_tensor(code, "logits", model(batch.inputs, batch.mask), expected)
    # The complete target, then its first token as a single step.
    assert isinstance(model, Seq2Seq)
    memory, symbols = model.encode(batch.source, batch.source_mask), task.sizes["target_symbols"]
    logits = model.decode(batch.target_in, memory)
    _check_tensor(code, "logits", logits, (*batch.target_in.shape, symbols))
    states, _ = model.step(batch.target_in[:, :1], model.start(memory))
    _check_tensor(code, "logits of one step", model.logits(states), (SAMPLES, 1, symbols))
    return logits


def build_model(config: RunConfig, task: AnyTask) -> TaskModel:
    """Return the model of a run, initialized with the seed of the run and without the pruned heads.

    The global random state is restored. Raises `InputError` for heads that the model does not have, and for a
    custom model that cannot be built.
    """
    sizes = dict(task.sizes)
    if task.answers == "numbers":
        sizes["vary_len"] = config.training.vary_len
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        custom = " with ".join(config.custom_parts)
        with custom_code(f"{custom} cannot be built", "correct it") if custom else nullcontext():
            model = config.model_class(config.model, **sizes)
    for layer, heads in config.kept_heads.items():
        keep_heads(find_layer(model, layer), heads)
    return model


def load_weights(model: nn.Module, folder: RunFolder) -> int:
    """Load the weights of a run into its model, and return the number of training steps of the weights.

    Raises `InputError` if the weights are missing, damaged, or incompatible with the config.
    """
    checkpoint = Checkpoint.load(folder, tensor_specs(model.state_dict()))
    assert checkpoint.weights is not None
    model.load_state_dict(checkpoint.weights)
    return checkpoint.step


def start(
    config: RunConfig,
    task: AnyTask,
    context: DistributedContext = SINGLE_PROCESS,
    before: Mapping[str, Tensor] | None = None,
) -> TrainingState:
    """Return the initial training state, with the parameters `before` of an earlier run, if any.

    Raises `InputError` if the model cannot be sharded, if these parameters are incompatible, or if custom code fails.
    """
    settings = config.training
    if config.custom_parts:
        check_custom_parts(config.model)
    model = _initial_model(config, task, before)
    if config.custom_parts:  # custom code must work on a small batch; the model does not change
        code = " with ".join(config.custom_parts)
        with custom_code(f"{code} fails on a batch of {SAMPLES}"):
            logits = _logits(code, config, task, copy.deepcopy(model))
            if not logits.requires_grad:
                raise PluginError(f"{code} gives logits that depend on no parameter: there is nothing to train")
            logits.float().logsumexp(-1).mean().backward()
    generator = make_generator(settings.seed, "train")
    objective = make_objective(model.to(context.device), settings, generator)
    if settings.sharded:
        from regard.training.sharding import ShardedState, shard  # loads most of torch.distributed

        shard(objective, context)
    optimizer = make_optimizer(objective.model, settings.optimization)
    average = {}
    if settings.average:
        parameters = trained_parameters(objective.model)
        average = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    if settings.sharded:
        replica = _initial_model(config, task, before) if context.first else None
        return ShardedState(objective, optimizer, generator, 0, average, replica=replica)
    scaler = torch.amp.GradScaler(context.device.type) if settings.precision == "float16" else None
    return TrainingState(objective, optimizer, generator, 0, average, scaler=scaler)


def _initial_model(config: RunConfig, task: AnyTask, before: Mapping[str, Tensor] | None) -> TaskModel:
    model = build_model(config, task)
    if before is not None:
        specs = tensor_specs(model.state_dict())
        for name, spec in tensor_specs(before).items():
            if specs.get(name) != spec:
                raise InputError(
                    f"parameter {name} is {spec} in the earlier run, and {specs.get(name, 'missing')} in this "
                    f"run: use the same sizes, including max_len if positions are learned"
                )
        model.load_state_dict(before)
    if config.training.freeze:
        freeze(model, config.training.freeze)
    return model
