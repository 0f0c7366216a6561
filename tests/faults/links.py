"""A campaign of links at every name that a command writes: their targets stay unchanged.

    python -m tests.faults links                  all names of every scene, with each kind of link, or `--count`
    python -m tests.faults links --only 12        repeat one trial

If a file or folder exists before the command, the link points to a copy, so that the command can read it.
Nothing outside the folder may change, the status is 0, 1 or 2, and an error message is one line.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.faults.children import Ended
from tests.faults.kills import operations_of, sample
from tests.faults.report import Report, Trial, campaign
from tests.faults.scenes import Stage, call, contents, fresh, home_folder, scenes, set_up
from tests.faults.watch import HALF_WRITTEN

WAYS = ("link", "dangling link", "second name", "link to a pipe", "pipe")
PRECIOUS = b"precious"


def names_of(stage: Stage) -> list[str]:
    """Return the files and folders that a scene writes, by their names in its folder.

    Folders named by the user are excluded, because links to such folders may be followed. The content of
    folders that are written under temporary names is excluded, too.
    """
    written = {HALF_WRITTEN.sub(r"/\1", each.partition(" ")[2]) for each in operations_of(stage)}
    locks = {each.partition(" ")[2] for each in operations_of(stage) if each.endswith(".lock")}
    found = {each.removeprefix("/") for each in written | locks} | {
        name.rstrip("/") for name, content in stage.whole.items() if stage.old.get(name) != content
    }
    folders = {str(parent) for name in found for parent in Path(name).parents}
    read = {"", ".", "text", "models", *(stage.scene.kept or ()), "models/signal2"}
    return sorted(name for name in found | folders if name not in read and "~" not in name and "..." not in name)


def plant(site: Path, name: str, way: str) -> Path:
    """Replace `name` with a link, and return the folder of its target."""
    place, outside = site / name, site.with_name("outside")
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir()
    victim = outside / "victim"
    if place.exists():
        shutil.move(place, victim)
    elif way in ("link", "second name"):
        victim.write_bytes(PRECIOUS)
    if way == "link to a pipe":  # and not to a device, which a fault would replace for the whole machine
        victim.unlink(missing_ok=True)
        os.mkfifo(victim)
    if way == "second name":
        place.hardlink_to(victim)
    elif way == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(victim)
    if way == "dangling link":
        victim.unlink(missing_ok=True)
    return outside


def judge(ended: Ended, before: dict[str, bytes], after: dict[str, bytes], way: str) -> Iterator[str]:
    """Yield the faults in the target of the link and in the output of the command."""
    if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
        yield f"changes what a {way} led to: {changed[0]}"
    if "Traceback" in ended.err or "internal error" in ended.err:
        yield f"traceback: {ended.err.strip().splitlines()[-1][:160]}"
    if ended.status not in (0, 1, 2) or ended.hung or ended.stopped:
        yield f"status {ended.status}"
    own = [line for line in ended.err.splitlines() if line.startswith("regard: ")]
    if ended.status and len(own) != 1:
        yield f"{len(own)} lines for a refusal"


def main(count: int | None, seed: int, only: int | None = None) -> Report:
    """Plant links at all names of all scenes, or at a random sample of `count` names."""
    with home_folder() as root:
        stages = [set_up(scene, root / scene.name) for scene in scenes()]
        cases = [
            (stage, name, way)
            for stage in stages
            for name in names_of(stage)
            for way in WAYS
            # A link can replace `name` before the command; a folder has no hard links.
            if (stage.folder / name).parent.is_dir() and (way == "link" or not (stage.folder / name).is_dir())
        ]

        def attempt(index: int) -> tuple[Trial, str]:
            stage, name, way = cases[index]
            site = fresh(stage)
            outside = plant(site, name, way)
            before = contents(outside)
            ended = call(stage.scene.argv, site)
            faults = tuple(judge(ended, before, contents(outside), way))
            return Trial(index, way, f"status {ended.status}", faults, (stage.scene.name, name, way)), ended.err

        return campaign("links", "links", seed, sample(len(cases), count, seed), only, attempt)
