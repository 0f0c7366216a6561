"""Train and translate with JoeyNMT 2.3, for recurrent.py and the translation benchmarks.

    python joeynmt_peer.py FOLDER        (with the Python of JoeyNMT's virtual environment)

FOLDER contains config.json (JoeyNMT's configuration) and the text files that config.json names. The program
trains a model, or loads the file `weights` of config.json. Unless `search` is false, the program translates the
test set with greedy search and a beam of 5 into found-1.txt and found-5.txt. The program prints one line of
JSON with the target tokens per second of each logging interval and the seconds of each search. Each validation
appends a line of JSON to validations.jsonl: the number of updates and target tokens so far, and the wall-clock
and CPU seconds, excluding validation. Training stops after `minutes` of wall-clock time if config.json sets
them. An interrupted training run continues from its latest checkpoint.
"""

import json
import logging
import sys
import time
from pathlib import Path


def main() -> None:
    """Train and translate."""
    import numpy as np
    import torch
    from joeynmt import builders
    from joeynmt.config import parse_global_args
    from joeynmt.data import load_data
    from joeynmt.helpers import load_checkpoint
    from joeynmt.model import build_model
    from joeynmt.prediction import predict
    from joeynmt.training import TrainManager, train

    logging.disable(logging.WARNING)
    folder = Path(sys.argv[1])
    config = json.loads((folder / "config.json").read_text())
    torch.set_num_threads(config["threads"])
    speeds: list[float] = []

    def log(manager: TrainManager, epoch: int, elapsed: float, tokens: int, correct: int, loss: float) -> None:
        speeds.append((manager.stats.total_tokens - tokens) / elapsed)

    TrainManager._log_scores = log
    torch.load = _trusting(torch.load)  # its checkpoints hold objects that torch.load refuses
    plateau = builders.ReduceLROnPlateau  # newer versions of PyTorch removed `verbose`
    builders.ReduceLROnPlateau = lambda *args, verbose, **kwargs: plateau(*args, **kwargs)
    TrainManager._validate = _timed(TrainManager._validate, folder, config.get("minutes"))
    (folder / "model").mkdir(exist_ok=True)
    latest = folder / "model" / "latest.ckpt"
    if latest.exists():
        config["training"]["load_model"] = str(latest.resolve())
    if "weights" not in config:
        train(rank=0, world_size=None, cfg=config, skip_test=True)
    if config.get("search") is False:
        print(json.dumps({"train": speeds}))
        return

    args = parse_global_args(config, mode="train")
    for side in ("src", "trg"):
        args.data[side].setdefault("voc_file", str(folder / "model" / f"{side}_vocab.txt"))
    source, target, _, _, test = load_data(cfg=args.data, datasets=["test"])
    model = build_model(args.model, src_vocab=source, trg_vocab=target)
    if "weights" in config:
        model.load_state_dict(torch.load(config["weights"]))
    else:
        model.load_state_dict(load_checkpoint(latest, map_location=torch.device("cpu"))["model_state"])
    seconds, exact = {}, {}
    for beam in (1, 5):
        for _ in range(2):  # the first search warms up
            began = time.perf_counter()
            _, references, translations, *_ = predict(
                model, test, args.device, 0, args=args.test._replace(beam_size=beam), autocast=args.autocast
            )
            seconds[beam] = time.perf_counter() - began
        (folder / f"found-{beam}.txt").write_text("".join(f"{line}\n" for line in translations))
        exact[beam] = float(
            np.mean([reference == line for reference, line in zip(references, translations, strict=True)])
        )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"train": speeds, "seconds": seconds, "exact": exact, "parameters": parameters}))


def _timed(validate, folder, minutes):
    """Wrap `validate`: store the training time before each validation, and stop after `minutes`."""
    begun, used = time.perf_counter(), time.process_time()
    validations = folder / "validations.jsonl"
    if validations.exists():
        last = json.loads(validations.read_text().splitlines()[-1])
        begun, used = begun - last["seconds"], used - last["processor_seconds"]

    def timed(manager, data):
        nonlocal begun, used
        now, now_used = time.perf_counter(), time.process_time()
        line = {"updates": manager.stats.steps, "tokens": int(manager.stats.total_tokens)}
        line |= {"seconds": now - begun, "processor_seconds": now_used - used}
        validate(manager, data)
        with validations.open("a") as file:
            file.write(f"{json.dumps(line)}\n")
        begun += time.perf_counter() - now
        used += time.process_time() - now_used
        if minutes is not None and line["seconds"] >= 60 * minutes:
            manager.stats.is_max_update = True

    return timed


def _trusting(load):
    def loaded(*args, **kwargs):
        return load(*args, **{"weights_only": False, **kwargs})

    return loaded


if __name__ == "__main__":
    main()
