"""All live sessions of this process: so that none outlives its cell, its kernel, or a measurement beside it."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.live.session import Session

_sessions: weakref.WeakValueDictionary[str, Session] = weakref.WeakValueDictionary()
_lock = threading.RLock()
_measuring: dict[int, int] = {}  # thread id -> depth
_hooked: weakref.WeakSet[Any] = weakref.WeakSet()


def register(key: str, session: Session) -> None:
    """Make `session` the one of that key; the one before it stops."""
    with _lock:
        before = _sessions.get(key)
        _sessions[key] = session
    if before is not None and before is not session:
        before.replaced()
    hook_interrupts()


def sessions() -> list[Session]:
    """Sessions that exist."""
    with _lock:
        return list(_sessions.values())


def stop_all() -> None:
    """Stop every session and wait for its thread; errors stay with their sessions."""
    for session in sessions():
        with suppress(Exception):
            session.halt()


@contextmanager
def paused_sessions(timeout: float = 30.0) -> Iterator[None]:
    """Inside, no session of this process computes: measurements stay clean. Those that ran go on afterwards.

    Waits until each has ended the step it is in, at most `timeout` seconds. A session that measures something
    itself (its capacity, say) does not wait for itself. May be nested.
    """
    me = threading.get_ident()
    with _lock:
        _measuring[me] = _measuring.get(me, 0) + 1
    try:
        for session in sessions():
            if session.worker is None or session.worker.ident not in _measuring:
                session.wait_parked(timeout)
        yield
    finally:
        with _lock:
            _measuring[me] -= 1
            if not _measuring[me]:
                del _measuring[me]
        for session in sessions():
            session.poke()


def measuring() -> bool:
    """True while another thread than the calling one is inside `paused_sessions`."""
    return any(thread != threading.get_ident() for thread in list(_measuring))


def cell_key(fallback: str) -> str:
    """Names the notebook cell that is being run, where the front end tells; else `fallback`."""
    with suppress(Exception):
        shell = _shell()
        header = shell.get_parent() if hasattr(shell, "get_parent") else shell.kernel.get_parent()
        cell = header.get("metadata", {}).get("cellId")
        if cell:
            return f"cell {cell}"
    return fallback


def _shell() -> Any:
    """The IPython shell, None outside of one; never imports IPython by itself."""
    import sys

    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def hook_interrupts() -> None:
    """Interrupting the kernel stops the sessions too, whether a cell is running or not.

    While a cell runs IPython raises KeyboardInterrupt in it, which is seen when the cell ends. Between cells
    ipykernel ignores the signal; the handler it puts back then is exchanged for ours.
    """
    shell = _shell()
    if shell is None or shell in _hooked:
        return
    _hooked.add(shell)
    shell.events.register("post_run_cell", _after_cell)
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and hasattr(kernel, "saved_sigint_handler"):
        kernel.saved_sigint_handler = lambda *_: halt_soon()


def _after_cell(result: Any) -> None:
    if isinstance(getattr(result, "error_in_exec", None), KeyboardInterrupt):
        stop_all()


def halt_soon() -> None:
    """Stop every session from a thread of its own: a signal handler must not take locks."""
    threading.Thread(target=stop_all, name="lab-live-interrupt", daemon=True).start()


atexit.register(stop_all)
