"""Mock agents in one process, each on its own port. They note every order they answer, and hold answers when told to.

`python -m tests.e2e.agent JSON`: a list of `{"name", "port", "fail_ratio"?, "delay_s"?, "keep_s"?, "refuse"?}`. The
key, the folder of their files and the file of notes come from the environment. Control, for tests:
`POST /test/hold/provision`, `POST /test/release/provision` (the same for `deprovision`); a held order is carried out,
only its answer waits.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvicorn

from backends.mock import serve
from fred.conf import AgentConfig

REFUSAL = (400, {"error": "no such offer here", "validation_code": "unknown_sku"})
ORDERS = ("/provision", "/deprovision", "/restart", "/update", "/restore")


class Noted:
    """An agent behind a door that writes down who came and what they were told."""

    def __init__(self, app: Any, spec: dict[str, Any], notes: int) -> None:
        self.app, self.name, self.refuses, self.notes = app, spec["name"], spec.get("refuse", False), notes
        self.open = {path: asyncio.Event() for path in ORDERS}
        for door in self.open.values():
            door.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if path.startswith("/test/"):
            _, _, verb, order = path.split("/")
            door = self.open[f"/{order}"]
            door.set() if verb == "release" else door.clear()
            return await answer(send, 200, {})
        if path not in ORDERS:
            return await self.app(scope, receive, send)
        body = await whole(receive)
        order = json.loads(body)
        operation = parse_qs(urlsplit(order.get("callback_url", "")).query).get("operation_id", [""])[0]

        async def replay() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def noted(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.note(path, order["lease_uuid"], operation, message["status"])
                await self.open[path].wait()
            await send(message)

        if self.refuses and path == "/provision":
            return await answer(noted, *REFUSAL)
        return await self.app(scope, replay, noted)

    def note(self, path: str, lease: str, operation: str, status: int) -> None:
        line = {"backend": self.name, "path": path, "lease": lease, "operation": operation, "status": status}
        os.write(self.notes, json.dumps(line).encode() + b"\n")


async def whole(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def answer(send: Any, status: int, content: Any) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def server(spec: dict[str, Any], folder: Path, notes: int) -> uvicorn.Server:
    config = AgentConfig(
        name=spec["name"],
        callback_secret=os.environ["AGENT_SECRET"],
        state_path=str(folder / f"{spec['name']}.sqlite"),
        fail_ratio=spec.get("fail_ratio", 0.0),
        delay=timedelta(seconds=spec.get("delay_s", 0)),
        retention=timedelta(seconds=spec.get("keep_s", 0)),
    )
    app = Noted(serve.agent(config), spec, notes)
    return uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=spec["port"], http="httptools", loop="uvloop", ws="none",
                       lifespan="on", log_config=None, access_log=False, timeout_graceful_shutdown=1)
    )  # fmt: skip


async def main() -> None:
    folder = Path(os.environ["AGENT_FOLDER"])
    notes = os.open(os.environ["AGENT_NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    await asyncio.gather(*(server(spec, folder, notes).serve() for spec in json.loads(sys.argv[1])))


if __name__ == "__main__":
    asyncio.run(main())
