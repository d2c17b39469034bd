"""A Ray session for all tests of transports between processes."""

from collections.abc import Iterator

import pytest

from roll_core.cluster.session import Session, open_session
from roll_core.platforms.cpu import CpuPlatform


@pytest.fixture(scope="package")
def session() -> Iterator[Session]:
    with open_session(CpuPlatform()) as opened:
        yield opened
