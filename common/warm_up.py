"""What a server loads beside its first requests: the SDKs that these will need, which take longer to import than all the rest.

functions-framework makes the application before gunicorn forks the worker that serves it, and no thread outlives a fork. So the loading
begins in the worker.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable

from common import log
from common.config import Settings, settings

Load = Callable[[Settings], object]


def in_each_worker(*loads: Load) -> None:
    """Have every worker of this instance begin with `loads`, in this order. Only on Cloud Run, which names its service in each
    instance: what else forks, a test or a laptop's launcher, wants none of it."""

    def forked() -> None:
        if "K_SERVICE" in os.environ:
            begin(settings, *loads)

    os.register_at_fork(after_in_child=forked)


def begin(config: Callable[[], Settings], *loads: Load) -> threading.Thread:
    """Carry out `loads` in a thread. One that fails is logged and no more: the first request meets the same error, and tells."""

    def load() -> None:
        # Nothing that an import makes is garbage, and looking for some takes a fifth of the time. What is loaded stays for the life
        # of the process; frozen, it is never looked at again, which would stop every stream for a tenth of a second.
        gc.disable()
        try:
            for step in loads:
                _carry_out(step, config)
        finally:
            gc.freeze()
            gc.enable()

    thread = threading.Thread(target=load, name="warm-up", daemon=True)
    thread.start()
    return thread


def _carry_out(step: Load, config: Callable[[], Settings]) -> None:
    try:
        step(config())
    except Exception as exc:  # the edge of a thread
        log.write_exception("could not be loaded ahead", exc, step=f"{step.__module__}.{step.__qualname__}")
