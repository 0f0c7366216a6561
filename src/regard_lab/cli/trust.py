"""`regard trust RUN`: calibrate the doubt of a translator on planted faults."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import print_message, print_table, say_saved
from regard.data.parallel import ParallelText
from regard.data.prepare import read_pairs
from regard.data.unknown_tokens import unknown_in_pairs
from regard.errors import InputError, check_range
from regard.fast.memory import keep_memory
from regard.io import check_writable, refuse_input, write_json
from regard_lab.doubts.calibration import FALSE_ALARMS, FILE, SMALLEST, calibrate_doubt, check_calibration


@dataclass(frozen=True, kw_only=True)
class TrustFlags:
    """Calibrate the doubt of a translator: plant faults in its translations, in references (omitted words,
    ...) and in the sources (noise, ...), and fit a classifier of attention, probabilities and text. The table
    shows how well the doubt finds faults in sentences that were not used for fitting. The calibration is
    stored with the run, for `regard translate --doubt`."""

    data: tuple[Path, ...] = ()
    """Source and target file, or one file of tab-separated pairs, that were not used for training. Default: the
    validation text of the run, or else its test text; or pairs that its task generates."""
    samples: int = 500
    """Largest number of pairs, from the beginning of the text (50 or more)."""
    false_alarms: float = FALSE_ALARMS
    """Share of good translations that get a warning (above 0, less than 0.5)."""
    reverse: str | None = None
    """Run of the opposite direction. Its probability of the source is a further feature; it is needed again by
    `regard translate --doubt`."""
    beam: int | None = None
    """Beam width of the translations. Default: 5."""
    seed: int = 0
    """Random seed of the planted faults."""
    json: Path | None = None
    """Write all numbers to this JSON file."""
    lenient: bool = False
    """Leave out invalid lines of --data."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_trust(argv: list[str]) -> None:
    [name], flags = read_command(TrustFlags, argv, "regard trust RUN", example="translation")
    check_range("samples", flags.samples, SMALLEST, 10**6)
    if flags.lenient and not flags.data:
        raise InputError("--lenient leaves out lines of --data: give --data, or leave out --lenient")
    run = flags.storage.load_translator(name)
    reverse = flags.storage.load_reverse(flags.reverse, run)
    options: dict[str, Any] = {"false_alarms": flags.false_alarms, "beam": flags.beam, "seed": flags.seed}
    check_calibration(run, **options)
    if flags.json is not None:
        check_writable(flags.json)
        refuse_input(flags.json, flags.data)
    keep_memory()
    if flags.data:
        text = ParallelText(flags.data, lenient=flags.lenient)
        pairs = [pair for pair in read_pairs(text, "calibration") if run.too_long(pair[0]) is None]
        vocabularies = (run.task.source_vocabulary, run.task.target_vocabulary)
        for warning in unknown_in_pairs("calibration", pairs[: flags.samples], vocabularies).warnings:
            print_message(f"warning: {warning}")
        name_of_text = ", ".join(path.name for path in flags.data)
    else:
        config = run.task.config
        files = getattr(config, "valid", ()) or getattr(config, "test", ())
        name_of_text = ", ".join(Path(file).name for file in files) or "generated pairs"
        most = flags.samples + bool(files)  # one more shows that the text is longer
        pairs = [(source, target) for source, target, *_ in run.unseen(most, 0, purpose="calibrate")]
    if len(pairs) > flags.samples:
        print_message(f"only the first {flags.samples:,} pairs of {name_of_text} are used: --samples raises this")
    earlier = (run.folder / FILE).exists()
    report = calibrate_doubt(run, pairs[: flags.samples], text=name_of_text, reverse=reverse, **options)
    print_table(report.table())
    replaced = " instead of the earlier calibration" if earlier else ""
    sys.stdout.write(f"Stored in {run.folder}{replaced}: `regard translate {name} --doubt` uses it\n")
    if flags.json is not None:
        write_json(flags.json, report.json(), indent=1)
        say_saved(flags.json)
