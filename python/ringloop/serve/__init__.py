"""An ASGI server: HTTP/1.1 and WebSocket by uvicorn, HTTP/3 and WebSocket over it by `ringloop.h3`.

`python -m ringloop serve app:app --bind :443 --cert cert.pem --key key.pem`, or from a program::

    settings = serve.Settings(certificate="cert.pem", private_key="key.pem")
    async with serve.Server(app, settings) as server:
        await server.wait_closed()

Needs uvicorn and websockets: `pip install 'ringloop[serve]'`.
"""

from __future__ import annotations

try:
    from ringloop.serve._server import Server, StartupError
    from ringloop.serve._settings import Settings
    from ringloop.serve._workers import run
except ImportError as _error:
    if _error.name is None or _error.name.partition(".")[0] not in {"uvicorn", "websockets"}:
        raise
    raise ImportError(
        f"ringloop.serve needs {_error.name}, which is not installed: pip install 'ringloop[serve]'",
        name=_error.name,
    ) from None

__all__ = ["Server", "Settings", "StartupError", "run"]
