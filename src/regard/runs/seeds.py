"""Runs that differ only in their training seed."""

from collections.abc import Sequence

from regard.errors import InputError
from regard.training.config import RunConfig


def check_seeds(names: Sequence[str], configs: Sequence[RunConfig]) -> None:
    """Raise `InputError` unless runs have one task and shape, equal options, and different seeds. `names`: for
    messages.
    """
    first, expected = repr(names[0]), configs[0].flags()
    seeds = {configs[0].training.seed: first}
    for name, config in zip(map(repr, names[1:]), configs[1:], strict=True):
        if config.on != configs[0].on and config.name != configs[0].name:
            raise InputError(
                f"{first} is a run of {configs[0].name}, {name} of {config.name}: give runs of one task"
            )
        flags = config.flags()
        for flag in sorted((flags.keys() | expected.keys()) - {"seed"}):
            if flags.get(flag) != expected.get(flag):
                raise InputError(
                    f"{flag} is {expected.get(flag)} in {first} and {flags.get(flag)} in {name}: give runs that "
                    f"differ only in their seed"
                )
        if config.kept_heads != configs[0].kept_heads:
            raise InputError(
                f"{first} and {name} were pruned to different heads: give runs before pruning, or with the same "
                f"heads"
            )
        if config.training.seed in seeds:
            raise InputError(
                f"seed {config.training.seed} is that of {seeds[config.training.seed]} and of {name}: give each "
                f"seed once"
            )
        seeds[config.training.seed] = name
