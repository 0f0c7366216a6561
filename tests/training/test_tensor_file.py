"""Tensor files are read unchanged or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, strategies as st

from regard.io import DamageError
from regard.training.tensor_file import LARGEST, TYPES, pack_tensors, read_metadata, read_tensors, tensor_specs

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([1, 2]), "c": torch.zeros(0, 5).half()}
CONFIG = '{"seed":0}'
CONTENT = pack_tensors(TENSORS, 12, CONFIG)


def same(found: dict[str, torch.Tensor]) -> bool:
    return found.keys() == TENSORS.keys() and all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def test_packed_file_is_read_by_regard_and_by_safetensors(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(CONTENT)
    found = read_tensors(tmp_path / "x", tensor_specs(TENSORS))
    assert same(found.tensors) and (found.step, found.config, found.intact) == (12, CONFIG, True)
    assert pack_tensors(found.tensors, 12, CONFIG) == CONTENT and read_metadata(tmp_path / "x") == (
        CONFIG,
        found.digest,
    )
    assert same(safetensors.torch.load(CONTENT))


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_every_type_survives(tmp_path: Path, dtype: torch.dtype) -> None:
    sizes = [(3, 2), (), (0, LARGEST)]
    values = {f"{size}": torch.randint(0, 2, size, dtype=torch.uint8).to(dtype) for size in sizes}
    file = tmp_path / "no text \udcff"  # a name that the file system accepts, but that is not valid UTF-8
    file.write_bytes(pack_tensors(values, 1))
    found = read_tensors(file, tensor_specs(values)).tensors
    assert all(torch.equal(found[name], value) and found[name].dtype == dtype for name, value in values.items())


def test_files_without_digest_are_not_intact(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(safetensors.torch.save(TENSORS, {"step": "7"}))
    found = read_tensors(tmp_path / "x")
    assert same(found.tensors) and found[1:] == (7, "", None, False)


def test_every_flipped_bit_and_cut_byte_is_found(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("flips") / "x"

    @given(place=st.integers(0, len(CONTENT) - 1), bit=st.integers(-1, 7))
    def check(place: int, bit: int) -> None:
        content = bytearray(CONTENT)
        if bit < 0:
            del content[place:]
        else:
            content[place] ^= 1 << bit
        file.write_bytes(content)
        try:
            found = read_tensors(file, tensor_specs(TENSORS))
        except DamageError as error:
            assert "\n" not in str(error)
        else:
            whole = same(found.tensors) and (found.step, found.config) == (12, CONFIG)
            assert whole or not found.intact or found.digest is None  # refused by current runs

    check()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("a", {"shape": [10**12]}, "the header gives tensor 'a' a wrong position or size"),
        ("a", {"data_offsets": [0, 10**15]}, "the header gives tensor '[ab]' a wrong position or size"),
        ("a", {"shape": [-2, -3]}, r"tensor 'a' has the impossible shape \[-2, -3\]"),
        ("a", {"shape": [10**9, 10**9, 0]}, r"tensor 'a' has the impossible shape \[10+, 10+, 0\]"),
        ("a", {"dtype": "F99"}, "tensor 'a' is of unknown type 'F99'"),
        ("a", {"dtype": "I32"}, r"tensor 'a' is int32 \(2, 3\), not float32 \(2, 3\)"),
        ("a", {"shape": [3, 2]}, r"tensor 'a' is float32 \(3, 2\), not float32 \(2, 3\)"),
        ("a", {"more": 1}, "'more' in .* is unknown"),
        ("d", {"dtype": "F32", "shape": [0], "data_offsets": [40, 40]}, "tensor 'd' is not among the expected tensors"),
        ("__metadata__", {"step": "-1"}, "the file's step '-1' is not a number"),
        ("__metadata__", {"step": "9" * 50}, "the file's step '99999999999999999999' is not a number"),
        ("__metadata__", {"step": 3}, "'step' is a whole number, not a text"),
    ],
)
def test_inconsistent_header_is_refused(tmp_path: Path, name: str, change: dict[str, Any], message: str) -> None:
    begin = 8 + int.from_bytes(CONTENT[:8], "little")
    header = json.loads(CONTENT[8:begin])
    header[name] = {**header.get(name, {}), **change}
    text = json.dumps(header).encode()
    (tmp_path / "x").write_bytes(len(text).to_bytes(8, "little") + text + CONTENT[begin:])
    with pytest.raises(DamageError, match=message):
        read_tensors(tmp_path / "x", tensor_specs(TENSORS))


def test_huge_header_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.write((1 << 30).to_bytes(8, "little"))
        file.truncate(1 << 31)
    with pytest.raises(
        DamageError, match="the file's header has 1,073,741,824 bytes, more than the limit of 16,777,216"
    ):
        read_tensors(tmp_path / "x")


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(pack_tensors({"a": TENSORS["a"]}, 1))
    with pytest.raises(DamageError, match="tensor 'b' is missing"):
        read_tensors(tmp_path / "x", tensor_specs(TENSORS))
