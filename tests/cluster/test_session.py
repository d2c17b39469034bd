import pytest
from ray.exceptions import AuthenticationError

from roll_core.cluster.session import _no_session, open_session
from roll_core.errors import RollError
from roll_core.platforms.cpu import CpuPlatform


def failure(cause: Exception) -> ConnectionError:
    """As Ray raises it: the reason is in the chain of causes."""
    try:
        raise ConnectionError("Failed to connect to Ray cluster at head:6379") from cause
    except ConnectionError as error:
        return error


def test_a_cluster_that_is_not_there_is_named_with_every_cause() -> None:
    assert _no_session("head:6379", failure(RuntimeError("no route to host"))) == (
        "cannot join the Ray cluster at head:6379"
        "\n  cause: Failed to connect to Ray cluster at head:6379"
        "\n  cause: no route to host"
        "\n  try: check `ray status` there, or unset RAY_ADDRESS"
    )


def test_a_cluster_that_asks_for_a_token_gets_its_own_advice() -> None:
    message = _no_session("head:6379", failure(AuthenticationError("InvalidAuthToken: token is missing")))
    assert message.splitlines()[-1].startswith("  try: RAY_AUTH_MODE=token")


def test_a_machine_too_busy_for_ray_is_told_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_slow(**_options: object) -> None:
        raise Exception("The current node timed out during startup. This could happen for several reasons.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.init", too_slow)
    message = r"cannot start Ray on this machine\n  cause: The current.*\n  try: once more"
    with pytest.raises(RollError, match=message), open_session(CpuPlatform()):
        raise AssertionError("there is no session")
