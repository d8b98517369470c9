"""A WebSocket that tells a lease's events: whoever is not let in is answered over HTTP, before the upgrade."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import structlog
from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer

from tenants_api.errors import ApiError
from tenants_api.event_frames import frame
from tenants_api.event_streams import EventStreams, Stream, TooMany, is_stopping, rendered

GOING_AWAY: Final = (1001, "broker closed")
NOT_ALLOWED: Final = (1008, "client messages not allowed")
INTERNAL: Final = (1011, "")
TOO_MANY: Final = (1013, "too many connections")
OVER: Final = (1013, "max connection lifetime reached")

log = structlog.get_logger("tenants_api.consumers")


class EventsConsumer(AsyncConsumer):  # type: ignore[misc]  # channels has no types
    """One client of a lease's events. It may only listen; slow reading is the server's to end."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams
        self._stream: Stream | None = None
        self._telling: asyncio.Task[None] | None = None
        self._is_over = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one connection; its place is free at once when it ends, however it ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._telling is not None:
                self._telling.cancel()
                with suppress(asyncio.CancelledError):
                    await self._telling
            self._leave()

    async def websocket_connect(self, _: Any) -> None:
        """Let the client in, or say why not."""
        try:
            asked = await self._streams.let_in(self.scope)
            self._stream = await self._streams.open(asked)
        except TooMany:
            await self._accept_and_close(TOO_MANY)
            return
        except ApiError as error:
            await self._refuse(error)
            raise StopConsumer from None
        if is_stopping(self.scope).is_set():
            await self._accept_and_close(GOING_AWAY)
            return
        await self.send({"type": "websocket.accept"})
        self._telling = asyncio.create_task(self._tell(self._stream, with_ids=asked.cursor.resumes))

    async def websocket_receive(self, _: Any) -> None:
        """Clients have nothing to say."""
        if self._telling is not None:
            self._telling.cancel()
        await self._close(NOT_ALLOWED)

    async def websocket_disconnect(self, _: Any) -> None:
        """It is over, whoever ended it."""
        self._is_over = True
        raise StopConsumer

    async def _tell(self, stream: Stream, *, with_ids: bool) -> None:
        try:
            async with asyncio.timeout(self._streams.limits.lifetime_s):
                if stream.first is not None:
                    await self._write(frame(stream.first, with_id=True, gap=True))
                while True:
                    await self._write(frame(await stream.subscription.next(), with_id=with_ids))
        except TimeoutError:
            await self._close(OVER)
        except OSError:
            return  # the client went away
        except Exception:
            log.exception("events.not_told")
            await self._close(INTERNAL)

    async def _write(self, text: str) -> None:
        await self.send({"type": "websocket.send", "text": text})

    async def _refuse(self, error: ApiError) -> None:
        answer, headers = rendered(error, self.scope)
        await self.send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await self.send({"type": "websocket.http.response.body", "body": answer.body})

    async def _accept_and_close(self, why: tuple[int, str]) -> None:
        await self.send({"type": "websocket.accept"})
        await self._close(why)

    async def _close(self, why: tuple[int, str]) -> None:
        """Close from our side, once; the place is free from here on."""
        self._leave()
        if self._is_over:
            return
        self._is_over = True
        code, reason = why
        with suppress(OSError):
            await self.send({"type": "websocket.close", "code": code, "reason": reason})

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.leave()
