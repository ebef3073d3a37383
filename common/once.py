"""What a process has one of: made by whoever asks first, kept for all."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class once(Generic[P, T]):
    """What `make` gives, made once for each set of arguments. With `functools.cache` alone, each of the threads that ask at the same
    moment makes one; an engine or a client that then nobody knows keeps its connections as long as the process lives."""

    def __init__(self, make: Callable[P, T]) -> None:
        self._made = functools.cache(make)
        self._making = threading.RLock()
        functools.update_wrapper(self, make)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._making:
            return self._made(*args, **kwargs)  # type: ignore[arg-type]

    def cache_clear(self) -> None:
        """Forget what was made."""
        self._made.cache_clear()
