"""A Ray session for the tests of a file."""

from collections.abc import Iterator

import pytest

from roll_core.cluster.session import Session, open_session
from roll_core.platforms.cpu import CpuPlatform


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with open_session(CpuPlatform()) as opened:
        yield opened
