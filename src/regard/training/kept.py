"""Kept models of a training run: `kept/step-N.safetensors`, the weights for use after N training steps."""

from regard.io.reading import list_steps
from regard.io.temporary import remove_quietly
from regard.io.writing import refuse_links
from regard.training.checkpoint import Checkpoint
from regard.training.criterion import Criterion
from regard.training.run_folder import RunFolder


def keep_weights(folder: RunFolder, checkpoint: Checkpoint, most: int, criterion: Criterion | None) -> None:
    """Write the weights of a checkpoint to the kept models of a run, and remove all but the `most` best models.

    The best models are those with the best criterion in metrics.jsonl; of equally good models, and without a
    criterion, the latest. Models without metrics are removed first. Raises `MachineError` if a file cannot be
    written.
    """
    checkpoint.save_kept(folder)
    refuse_links(folder.kept_folder)
    values = {}
    if criterion is not None:
        lines = folder.read_metrics()
        values = {line["step"]: criterion.value(line) for line in lines if criterion.metric in line}
    steps = [int(path.stem.removeprefix("step-")) for path in list_steps(folder.kept_folder)]
    best = sorted(steps, key=lambda step: (values.get(step, float("-inf")), step))
    for step in best[:-most]:
        remove_quietly(folder.kept_folder / f"step-{step}.safetensors")
