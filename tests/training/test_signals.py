"""Signals during training: the first signal is delayed, immediate repeats are ignored, a later signal takes effect."""

import signal

import pytest

from regard.training import trainer


def test_first_signal_is_delayed_and_a_later_one_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(trainer.time, "monotonic", lambda: now)
    before = signal.getsignal(signal.SIGINT)
    with trainer.delay_signals() as stopped:
        signal.raise_signal(signal.SIGTERM)
        now += trainer.DEBOUNCE / 2
        signal.raise_signal(signal.SIGINT)
        assert stopped == [signal.SIGTERM]
        now += trainer.DEBOUNCE
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_signal_within_the_handler_is_debounced(monkeypatch: pytest.MonkeyPatch) -> None:
    # Python can run a handler inside another handler. The second signal arrives while the first handler reads
    # the clock.
    clock = trainer.time.monotonic
    coming = [signal.SIGINT]

    def monotonic() -> float:
        while coming:
            signal.raise_signal(coming.pop())
        return clock()

    monkeypatch.setattr(trainer.time, "monotonic", monotonic)
    with trainer.delay_signals() as stopped:
        signal.raise_signal(signal.SIGTERM)
        assert stopped == [signal.SIGTERM]
    assert not coming
