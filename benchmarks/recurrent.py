"""Compare the speed of recurrent encoder-decoders on Dates and Reverse with JoeyNMT 2.3 and a Keras loop.

    python benchmarks/recurrent.py [--steps 300] [--rounds 3] [--joeynmt FOLDER]

All programs use the same samples, symbols, sizes, batches and threads. The programs run alternately in separate
processes, and the tables show medians. JoeyNMT requires older versions of its dependencies, so the program
first creates a virtual environment for JoeyNMT in .venv/joeynmt or FOLDER. The program needs the extra peers.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers import joeynmt_config, joeynmt_python, joeynmt_text, peers_parser, run, run_joeynmt

EMBEDDING, HIDDEN, BATCH, TESTED = 64, 128, 64, 1000
TASKS = ("dates", "reverse")
"""Dates has long sources and short targets. Reverse has sources and targets of up to 20 symbols."""
EVERY = 50
"""Steps of one measurement."""
KERAS_STEPS = 30
"""Training steps of the Keras loop, which is slow."""
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Bahdanau: additive, context into the cell": (
        {"score": "additive", "context": "cell"},
        {"attention": "bahdanau", "input_feeding": True},
    ),
    "Luong with input feeding": (
        {"score": "general", "context": "output", "input_feeding": True},
        {"attention": "luong", "input_feeding": True},
    ),
    "Luong without": ({"score": "general", "context": "output"}, {"attention": "luong", "input_feeding": False}),
}
"""Regard's flags and JoeyNMT's decoder, by name.

In JoeyNMT's Bahdanau decoder, the current state is the query, and the cell reads a layer of context and state.
Regard follows the paper.
"""


def train_regard(task_name: str, flags: dict[str, Any], steps: int) -> dict[str, Any]:
    """Train and translate with Regard; runs in a separate process."""
    from regard.data.vocabulary import PAD
    from regard.models.base import Seq2Seq
    from regard.runs.sequence_run import PairRun
    from regard.streams import make_generator
    from regard.tasks.batch import BatchContext
    from regard.tasks.pairs import PairTask
    from regard.training.building import start
    from regard.training.config import make_config
    from regard.training.run_folder import create_run
    from regard.training.trainer import Learner

    config = make_config(
        task_name, {"embedding": EMBEDDING, "hidden": HIDDEN, "batchsize": BATCH, "steps": steps, **flags}
    ).resolved()
    task = config.task_class.restore(config.task, {})
    assert isinstance(task, PairTask)
    state, marks, tokens, batch = start(config, task), [time.perf_counter()], [0], task.batch

    def count_tokens(*args: Any) -> Any:
        pairs = batch(*args)
        tokens[-1] += int((pairs.target != PAD).sum())
        return pairs

    def mark(metrics: dict[str, float]) -> None:
        if metrics["step"] % EVERY == 0:
            marks.append(time.perf_counter())
            tokens.append(0)

    task.batch = count_tokens  # type: ignore[assignment, method-assign]
    with tempfile.TemporaryDirectory() as folder:
        with create_run(Path(folder) / task_name, config, overwrite=False) as building:
            state.save(building)
        batches = task.batches(config.training, BatchContext(generator=state.generator))
        learner = Learner(state, config.training, batches, type(building)(Path(folder) / task_name))
        learner.train(mark)
    speeds = [n / (b - a) for n, a, b in zip(tokens, marks, marks[1:], strict=False)]
    assert isinstance(state.model, Seq2Seq)
    run = PairRun(Path(folder), config, steps, task, state.model.eval())
    pairs = task.pairs(TESTED, make_generator(0, "test"), unseen=True)
    seconds, right = {}, {}
    for beam in (1, 5):
        for _ in range(2):  # the first search warms up
            began = time.perf_counter()
            answers = run.translate([pair.source for pair in pairs], beam=beam, batchsize=BATCH)
            seconds[str(beam)] = time.perf_counter() - began
        right[str(beam)] = statistics.mean(a == p.target for a, p in zip(answers, pairs, strict=True))
    parameters = sum(parameter.numel() for parameter in state.model.parameters())
    return {"train": speeds, "seconds": seconds, "exact": right, "parameters": parameters}


def keras_loop(task_name: str, steps: int) -> dict[str, Any]:
    """Train with the Keras loop; runs in a separate process."""
    import keras_recurrent
    import torch.nn.functional as F

    from regard.streams import make_generator
    from regard.tasks.all_tasks import find_task
    from regard.tasks.pairs import PairTask

    task, generator = find_task(task_name)(), make_generator(0, "train")
    assert isinstance(task, PairTask)
    batches, tokens = [], []
    for _ in range(steps):
        source, target, _ = task.sample(BATCH, generator)
        source = F.pad(source, (0, task.max_source + 1 - source.shape[1]))
        target = F.pad(target, (0, task.max_target + 1 - target.shape[1]))
        batches.append((source.numpy(), target.numpy()))
        tokens.append(int((target != 0).sum()))
    symbols = (len(task.source_vocabulary), len(task.target_vocabulary))
    seconds = keras_recurrent.train(batches, symbols=symbols, embedding=EMBEDDING, hidden=HIDDEN)
    return {"train": [n / s for n, s in zip(tokens, seconds, strict=True)][3:]}


def joeynmt(python: Path, task_name: str, decoder: dict[str, Any], steps: int, threads: int) -> dict[str, Any]:
    """Train and translate with JoeyNMT."""
    from regard.streams import make_generator
    from regard.tasks.all_tasks import find_task
    from regard.tasks.pairs import PairTask

    task = find_task(task_name)()
    assert isinstance(task, PairTask)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        samples = {
            "train": task.pairs(BATCH * steps, make_generator(0, "train")),
            "dev": task.pairs(BATCH, make_generator(1, "test"), unseen=True),
            "test": task.pairs(TESTED, make_generator(0, "test"), unseen=True),
        }
        for split, pairs in samples.items():
            joeynmt_text(folder, split, ((pair.source, pair.target) for pair in pairs))
        recurrent = {"type": "recurrent", "rnn_type": "lstm", "num_layers": 1, "dropout": 0.0}
        recurrent |= {"embeddings": {"embedding_dim": EMBEDDING, "dropout": 0.0}}
        config = {
            **joeynmt_config(folder, threads, {"level": "char", "max_length": 100, "voc_min_freq": 1}),
            "testing": {"batch_size": BATCH, "max_output_length": 2 * task.max_target, "eval_metrics": []},
            "training": {
                "learning_rate": 0.005,
                "scheduling": "exponential",
                "clip_grad_norm": 1.0,
                "batch_size": BATCH,
                "epochs": 1,
                "logging_freq": EVERY,
                "validation_freq": -(-steps // EVERY) * EVERY,  # must be a multiple of logging_freq
                "early_stopping_metric": "loss",
                "print_valid_sents": [],
            },
            "model": {
                "encoder": {**recurrent, "hidden_size": HIDDEN // 2, "bidirectional": True},
                "decoder": {
                    **recurrent,
                    "hidden_size": HIDDEN,
                    "hidden_dropout": 0.0,
                    "init_hidden": "bridge",
                    **decoder,
                },
            },
        }
        return run_joeynmt(python, folder, config)


def main() -> None:
    """Run all programs alternately, and print tables of medians."""
    parser = peers_parser(__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="training steps of each program (default: 300)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of measurement (default: 3)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        task, flags = json.loads(args.worker)
        print(json.dumps(keras_loop(task, args.steps) if flags == "keras" else train_regard(task, flags, args.steps)))
        return
    python = joeynmt_python(args.joeynmt)

    def worker(task: str, flags: Any, steps: int) -> dict[str, Any]:
        command = [sys.executable, __file__, "--worker", json.dumps([task, flags]), "--steps", str(steps)]
        return run(command, args.threads)

    print(f"{platform.machine()}, {args.threads} threads, {args.rounds} rounds of {args.steps} steps, medians\n")
    print(HEAD)
    for task in TASKS:
        for name, (flags, decoder) in VARIANTS.items():
            theirs, regard, plain = [], [], []
            for _ in range(args.rounds):
                theirs.append(joeynmt(python, task, decoder, args.steps, args.threads))
                regard.append(worker(task, flags, args.steps))
                if decoder["attention"] == "bahdanau":
                    plain.append(worker(task, "keras", min(args.steps, KERAS_STEPS)))
            print(row(task, name, "JoeyNMT", theirs, regard), flush=True)
            if plain:
                print(row(task, name, "Keras layers in a loop", plain, regard), flush=True)


HEAD = """| task | decoder | other program | training, target tokens/s: other | Regard | ratio \
| greedy, sentences/s: peer | Regard | ratio | beam 5: peer | Regard | ratio | exact match: peer | Regard |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def row(task: str, name: str, peer: str, theirs: list[dict[str, Any]], regard: list[dict[str, Any]]) -> str:
    """Return a row of the table: training, greedy search, beam size 5."""
    cells = [task, name, peer]
    pairs = [tuple(statistics.median(s for run in runs for s in run["train"][1:]) for runs in (theirs, regard))]
    if "seconds" in theirs[0]:
        pairs += [
            tuple(statistics.median(TESTED / run["seconds"][beam] for run in runs) for runs in (theirs, regard))
            for beam in ("1", "5")
        ]
    for other, own in pairs:
        cells += [f"{other:,.0f}", f"{own:,.0f}", f"{own / other:.1f}"]
    if "exact" in theirs[0]:
        cells += [f"{statistics.median(run['exact']['5'] for run in runs):.1%}" for runs in (theirs, regard)]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
