"""Rows of different lengths in files, such as the sentences of a corpus.

    NAME.bin           the concatenated values of all rows NAME-bounds.bin    the index of the first value of
    each row, and the total number of values: (rows + 1,) int64

Only the bytes of the requested rows are read, so memory does not grow with the size of the file. The files are
read with `pread`, because the pages of a memory map count as memory of the process. With a memory map, the
reported memory of a training run would grow to the size of the corpus. The files remain open, so another
process may remove the folder.
"""

import os
import weakref
import zlib
from pathlib import Path

import numpy as np

from regard.io.reading import DamageError, check_file

BOUND = np.dtype("<i8")
BLOCK = 1 << 20
"""The number of bytes per read when checksums are computed."""
Checksums = tuple[int, int]
"""CRC-32 checksums of the values and of the bounds."""


class RaggedWriter:
    """Writes rows block by block. Close the writer before the rows are read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = RaggedWriter(Path(folder), "words", np.dtype("<u2"))
    ...     writer.append(np.array([5, 6, 7]), np.array([2, 1]))
    ...     checksums = writer.close()
    ...     rows = RaggedArray(Path(folder), "words", np.dtype("<u2"), checksums)
    ...     rows.read(1, 2), rows.lengths(0, 2).tolist()
    ([array([7], dtype=uint16)], [2, 1])
    """

    def __init__(self, folder: Path, name: str, dtype: np.dtype) -> None:
        self._dtype, self._total = dtype, 0
        self._files = [path.open("xb") for path in _paths(folder, name)]
        self._checksums = [0, 0]
        self._write(1, np.zeros(1, BOUND))

    def append(self, values: np.ndarray, lengths: np.ndarray) -> None:
        self._write(0, np.ascontiguousarray(values, self._dtype))
        ends = self._total + np.cumsum(lengths, dtype=np.int64)
        self._write(1, ends.astype(BOUND))
        self._total += len(values)

    def close(self) -> Checksums:
        for file in self._files:
            file.close()
        return self._checksums[0], self._checksums[1]

    def _write(self, number: int, content: np.ndarray) -> None:
        self._files[number].write(content.data)
        self._checksums[number] = zlib.crc32(content.data, self._checksums[number])


class RaggedArray:
    """Rows written by `RaggedWriter`.

    Both files are read once to verify their checksums. Verifying parts on their first use would save little
    time, because the scan of the text before each training run reads more bytes. Raises `DamageError` if the
    files have changed, and `InputError` if the files are missing.
    """

    def __init__(self, folder: Path, name: str, dtype: np.dtype, checksums: Checksums) -> None:
        self.dtype = dtype
        self._descriptors = []
        for path, expected in zip(_paths(folder, name), checksums, strict=True):
            check_file(path)
            descriptor = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, descriptor)
            self._descriptors.append(descriptor)
            if _checksum(descriptor) != expected:
                raise DamageError(f"{path.name} changed after it was written (CRC-32)")
        self._rows = os.fstat(self._descriptors[1]).st_size // BOUND.itemsize - 1

    def __len__(self) -> int:
        return self._rows

    @property
    def total(self) -> int:
        return int(self._bounds(len(self), len(self))[0])

    def lengths(self, begin: int, end: int) -> np.ndarray:
        return np.diff(self._bounds(begin, end))

    def counts(self, size: int) -> np.ndarray:
        counts, total = np.zeros(size, np.int64), self.total
        for begin in range(0, total, BLOCK):
            counts += np.bincount(self._read(0, self.dtype, begin, min(begin + BLOCK, total)), minlength=size)
        return counts

    def read(self, begin: int, end: int) -> list[np.ndarray]:
        """Return the rows `begin` to `end` - 1 as read-only arrays."""
        bounds = self._bounds(begin, end)
        # Split one contiguous read, instead of reading row by row.
        values = self._read(0, self.dtype, int(bounds[0]), int(bounds[-1]))
        return np.split(values, bounds[1:-1] - bounds[0])

    def _bounds(self, begin: int, end: int) -> np.ndarray:
        return self._read(1, BOUND, begin, end + 1)

    def _read(self, number: int, dtype: np.dtype, begin: int, end: int) -> np.ndarray:
        size = dtype.itemsize
        content = os.pread(self._descriptors[number], (end - begin) * size, begin * size)
        return np.frombuffer(content, dtype)


def _paths(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.bin", folder / f"{name}-bounds.bin"


def _checksum(descriptor: int) -> int:
    total = offset = 0
    while block := os.pread(descriptor, BLOCK, offset):
        total, offset = zlib.crc32(block, total), offset + len(block)
    return total
