"""Public data sets: where they are, and how to tell that they came whole."""

from dataclasses import dataclass
from pathlib import Path

from regard.errors import MachineError, unknown


@dataclass(frozen=True)
class DataSet:
    """Files at one address."""

    url: str
    files: dict[str, str]
    """From name to SHA-256; sources before targets."""


DATA_SETS = {
    # Elliott et al. 2016: captions of 30,000 pictures, in English and German.
    "multi30k": DataSet(
        "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw",
        {
            "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
            "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
            "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
            "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
            "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
            "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        },
    )
}


def fetch(name: str, savepath: str | Path = "data", *, url: str | None = None) -> list[Path]:
    """Return the files of a data set under `savepath`/`name`; those that are not there whole are fetched.

    `url`: another folder on the network with the same files. Raises `InputError` for an unknown name,
    `MachineError` where a file cannot be fetched or is not what it should be.
    """
    if name not in DATA_SETS:
        raise unknown("data set", name, DATA_SETS)
    import pooch  # brings requests, which nothing else here needs

    found = DATA_SETS[name]
    address = (url or found.url).rstrip("/")
    pooch.get_logger().setLevel("WARNING")
    files = []
    for file, checksum in found.files.items():
        try:
            path = pooch.retrieve(
                f"{address}/{file}",
                f"sha256:{checksum}",
                fname=file,
                path=Path(savepath) / name,
                progressbar=False,
            )
        # requests' errors are OSErrors, a wrong checksum is a ValueError, links that go round a RuntimeError.
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise MachineError(f"cannot fetch {address}/{file}: {reason}") from error
        files.append(Path(path))
    return files
