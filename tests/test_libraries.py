"""Errors of libraries are converted to one line with the action, the library, and its message."""

import errno
import os
import sys
import threading
from pathlib import Path

import pytest
from tokenizers import Regex, pre_tokenizers

from regard.errors import InputError, MachineError
from regard.libraries import NO_TELEMETRY, check_hub_name, import_library, is_panic, library_errors, offline

SLOW_PATTERN = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
PANICS = "a" * 45 + "b!"


@pytest.mark.parametrize("error", [KeyError("x\ny"), RecursionError("deep"), SystemExit(3), OSError(2, "gone")])
def test_an_error_becomes_one_line(error: BaseException) -> None:
    with pytest.raises(InputError) as caught, library_errors("peer", "'folder' cannot be loaded", "copy it anew"):
        raise error
    assert str(caught.value).startswith(f"'folder' cannot be loaded: peer says {type(error).__name__}: ")
    assert str(caught.value).endswith("; copy it anew") and "\n" not in str(caught.value)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("x"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        OSError(errno.ENOSPC, "No space left"),
    ],
)
def test_machine_errors_stay_machine_errors(error: Exception) -> None:
    with pytest.raises(MachineError, match="peer says"), library_errors("peer", "it fails", "advice"):
        raise error


def test_own_errors_and_interrupts_pass() -> None:
    for error in (InputError("ours"), KeyboardInterrupt(), GeneratorExit()):
        with pytest.raises(type(error)) as caught, library_errors("peer", "it fails", "advice"):
            raise error
        assert caught.value is error


def test_a_panic_is_one_line_and_prints_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # threads of other tests may be running
    with pytest.raises(BaseException) as panic:
        SLOW_PATTERN.pre_tokenize_str(PANICS)
    assert is_panic(panic.value) and not isinstance(panic.value, Exception)
    assert "panicked" in capfd.readouterr().err
    with pytest.raises(InputError, match="tokenizers says PanicException: Onig"):
        with library_errors("tokenizers", "it fails", "advice"):
            SLOW_PATTERN.pre_tokenize_str(PANICS)
    assert capfd.readouterr().err == ""


def test_the_output_of_a_library_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with library_errors("peer", "it fails", "advice"):
        os.write(2, b"note\n")
    assert capfd.readouterr().err == "note\n"


BROKEN = {
    "raise ImportError('libpeer.so: cannot open shared object file')": "ImportError: libpeer.so",
    "import os; os.nothing": "AttributeError: module 'os' has no",
    "raise OSError('libgomp.so.1: cannot open')": "OSError: libgomp",
    "def (:": "SyntaxError",
    "import sys; sys.exit(4)": "SystemExit: 4",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_broken_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    (tmp_path / "brokenpeer.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as caught:
        import_library("brokenpeer", "a feature", "hub")
    assert f"importing brokenpeer fails: brokenpeer says {BROKEN[source]}" in str(caught.value)
    assert "\n" not in str(caught.value) and "--force-reinstall brokenpeer" in str(caught.value)


def test_a_missing_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^a feature needs peer_not_there: pip install 'regard\[hub\]'$"):
        import_library("peer_not_there", "a feature", "hub")
    (tmp_path / "halfpeer.py").write_text("import peer_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"needs halfpeer \(peer_not_there is missing\): pip install"):
        import_library("halfpeer", "a feature", "hub")


def test_usage_reports_are_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NO_TELEMETRY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    import_library("json", "a feature", "hub")
    assert {name: os.environ[name] for name in NO_TELEMETRY} == {**NO_TELEMETRY, "RAY_USAGE_STATS_ENABLED": "1"}


def test_a_path_is_not_sent_to_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("gpt2", "owner/gpt2", "owner/gpt-2.5_x"):
        check_hub_name(name)
    for name in ("models/gpt2", "./gpt2", "../gpt2", "/gpt2", "~/gpt2", "a/b/c", "gpt2/", "my model", "a\\b", ""):
        with pytest.raises(InputError, match="does not exist"):
            check_hub_name(name)


def test_offline_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(KeyError), offline():
        assert sys.modules["huggingface_hub.constants"].HF_HUB_OFFLINE
        raise KeyError
    assert not constants.HF_HUB_OFFLINE
