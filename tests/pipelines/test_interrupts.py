"""Ctrl-C and SIGTERM, sent to this process itself."""

import os
import signal

import pytest

from roll_core.errors import Interrupted
from roll_core.pipelines.interrupts import SIGNALS, Interrupts


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_at_once_and_says_which_it_was(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt, match=number.name), Interrupts().listening():
        os.kill(os.getpid(), number)


def test_a_held_signal_waits_and_the_user_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    interrupts = Interrupts()
    with interrupts.listening():
        interrupts.hold()
        os.kill(os.getpid(), signal.SIGTERM)
        assert "SIGTERM: stopping when this step has ended" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            interrupts.release()


def test_a_second_signal_does_not_wait() -> None:
    interrupts = Interrupts()
    with interrupts.listening():
        interrupts.hold()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_without_a_signal_nothing_stops() -> None:
    interrupts = Interrupts()
    with interrupts.listening():
        interrupts.hold()
        interrupts.release()


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts().listening():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_the_exit_code_is_that_of_the_signal(name: str, code: int) -> None:
    interrupt = KeyboardInterrupt(name)
    interrupt.add_note("  3 steps are saved")
    error = Interrupted(interrupt)
    assert (str(error), error.exit_code, error.__notes__) == (f"stopped by {name}", code, ["  3 steps are saved"])
