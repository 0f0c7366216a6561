"""Run folders in the format of earlier versions, without digests."""

import json
import zlib
from pathlib import Path

import safetensors.torch

from regard.training.tensor_file import read_tensors


def to_format_6(folder: Path) -> None:
    """Convert a run to the format regard-run/6, with a CRC-32 in each tensor file and a CRC-32 of the config in
    trainer files."""
    stored = json.loads((folder / "config.json").read_text())
    config = {
        name: value for name, value in stored.items() if name not in ("digest", "text", "initial", "format")
    }
    (folder / "config.json").write_text(json.dumps({"format": "regard-run/6", **config}))
    for file in folder.rglob("*.safetensors"):
        found = read_tensors(file)
        total = f"{zlib.crc32(json.dumps(config, sort_keys=True).encode()):08x}"
        of = total if file.parent.name == "trainer" else ""
        plain = safetensors.torch.save(found.tensors)
        begin = 8 + int.from_bytes(plain[:8], "little")
        crc = zlib.crc32(plain[begin:], zlib.crc32(f"{found.step} {of} ".encode()))
        about = {"step": str(found.step), "config": of, "crc32": f"{crc:08x}"}
        header = json.dumps({"__metadata__": about, **json.loads(plain[8:begin])}).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header + plain[begin:])
