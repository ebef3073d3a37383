"""The image's command: what `functions-framework` does, without garbage collection until the application is made.

    python -m functions.serve

The function and its address are named by the same environment: FUNCTION_SOURCE, FUNCTION_TARGET, HOST, PORT.
"""

from __future__ import annotations

import gc
import os


def main() -> None:
    """Make the application, then serve it until the process is told to end."""
    # An import makes next to no garbage, and the collector looks for it again and again. What is frozen it leaves alone, here and in the
    # worker, which shares these pages as long as neither writes.
    gc.disable()
    from functions_framework import create_app
    from functions_framework._http import create_server

    # gunicorn's control socket costs a thread and an event loop, and nobody uses it.
    server = create_server(create_app(), debug=False, control_socket_disable=True)
    gc.freeze()
    gc.enable()
    server.run(os.environ.get("HOST", "0.0.0.0"), int(os.environ.get("PORT", "8080")))  # noqa: S104 - a container's own network


if __name__ == "__main__":
    main()
