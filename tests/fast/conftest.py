"""Fast paths are tested only where they are enabled."""

import pytest

from regard import fast


@pytest.fixture(autouse=True)
def _enabled() -> None:
    if not fast.enabled():
        pytest.skip("REGARD_REFERENCE switches fast paths off")
