"""What every transport must keep, as tests to run on yours.

Subclass `TransportContract` in a test file and name the class:

    class TestMyTransport(TransportContract):
        transport_class = MyTransport
        config = {"num_storage_units": 1}
"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from roll_core.testing.transport_lifetimes import TransportLifetimes
from roll_core.testing.transport_processes import TransportProcesses
from roll_core.testing.transport_rows import TransportRows
from roll_core.testing.transport_values import TransportValues
from roll_core.transport import Transport


# pytest runs the tests of the last base first: the one that closes the transport comes at the end, so that a slow one
# is started once.
class TransportContract(TransportLifetimes, TransportValues, TransportRows, TransportProcesses):
    """Rows x fields come out as they went in: dtype, order, raggedness, types; nothing leaks and nothing is lost."""

    def test_it_is_a_transport_with_a_config(self) -> None:
        given = type(self).transport_class
        assert issubclass(given, Transport), f"{given.__name__} is not a roll_core.transport.Transport"
        with pytest.raises(ValidationError):
            pytest.fail(
                f"{given.Config.__name__} accepts the setting no_such_setting: {given.Config(no_such_setting=3)}"
            )
