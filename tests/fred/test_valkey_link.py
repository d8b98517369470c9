"""One script of Valkey's on an event loop, over whatever connection the URL says."""

import asyncio
import contextlib
import os
import ssl
from urllib.parse import urlsplit

import pytest
import uvloop
from redis.exceptions import ConnectionError as LinkError
from redis.exceptions import InvalidResponse, ResponseError

from fred.valkey_link import ScriptLink
from tests.backends.certificates import Authority
from tests.waiting import stand_still, wait_until

ECHO = "return {KEYS[1], ARGV[1], redis.call('INCR', 'runs')}"


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    def run(work):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(work, 10))

    return run


class Between:
    """Somebody between us and Valkey, who makes of each answer to a script some pieces, or None to hang up."""

    def __init__(self, changed=lambda data: [data]):
        self.changed = changed
        self.connections = 0
        self._tasks = []

    @contextlib.asynccontextmanager
    async def stand(self, start=asyncio.start_server, **where):
        """Listen there, else at the port that is yielded, until all connections are closed."""
        where = where or {"host": "127.0.0.1", "port": 0}
        async with await start(self._connected, **where) as server:
            try:
                yield server.sockets[0].getsockname()[1]
            finally:
                await asyncio.gather(*self._tasks)

    async def _connected(self, *here):
        self.connections += 1
        self._tasks.append(asyncio.current_task())
        address = urlsplit(os.environ["REDIS_URL"])
        there = await asyncio.open_connection(address.hostname, address.port)
        with contextlib.suppress(OSError):
            await self._pass_on(*here, *there)
        for _, writer in (here, there):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _pass_on(self, reader, writer, from_valkey, to_valkey):
        while data := await reader.read(65536):
            to_valkey.write(data)
            answer = await from_valkey.read(65536)
            pieces = self.changed(answer) if b"EVAL" in data else [answer]
            if pieces is None:
                return
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)


def url_of(port, query="protocol=2", *, scheme="redis", user=None):
    """The URL of Valkey, but at this port; None for its own."""
    url = urlsplit(os.environ["REDIS_URL"])
    who = user or url.netloc.rpartition("@")[0]
    return url._replace(scheme=scheme, netloc=f"{who}@127.0.0.1:{port or url.port}", query=query).geturl()


def database():
    return urlsplit(os.environ["REDIS_URL"]).path.removeprefix("/")


async def through(between, *, runs=1, query="protocol=2"):
    """What so many runs of the script answered."""
    async with between.stand() as port:
        return await answered(url_of(port, query), runs=runs)


async def answered(url, *, runs=1):
    link = ScriptLink(ECHO, lambda: url)
    try:
        return [await link.run(["k"], ["ä"]) for _ in range(runs)]
    finally:
        await link.close()


def echoed(number):
    """What so many runs answer."""
    return [[b"k", "ä".encode(), each] for each in range(1, number + 1)]


@pytest.mark.parametrize("protocol", ["2", "3"])
def test_user_password_database_and_name_are_those_of_the_url(valkey, run, protocol):
    user = f"user-{database()}"  # of this worker
    valkey.acl_setuser(user, enabled=True, passwords=["+p@ss"], keys=["*"], commands=["+@all"])
    url = url_of(None, f"client_name={user}&protocol={protocol}", user=f"{user}:p%40ss")

    async def work():
        link = ScriptLink(ECHO, lambda: url)
        found = await link.run(["k"], ["ä"])
        [client] = [one for one in valkey.client_list() if one["name"] == user]
        await link.close()
        return found, client

    try:
        found, client = run(work())
        with pytest.raises(LinkError):
            run(answered(url.replace("p%40ss", "other")))
    finally:
        valkey.acl_deluser(user)
    assert ([found], valkey.get("runs")) == (echoed(1), b"1")
    assert (client["user"], client["resp"], client["db"]) == (user, protocol, database())


def test_tls_is_that_of_the_url(valkey, run, tmp_path):
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", addresses=["127.0.0.1"]))

    async def work(query):
        async with Between().stand(host="127.0.0.1", port=0, ssl=context) as port:
            return await answered(url_of(port, query, scheme="rediss"))

    assert run(work(f"ssl_ca_certs={authority.file}")) == echoed(1)
    with pytest.raises(LinkError, match="certificate verify failed"):
        run(work(""))


def test_a_unix_socket_is_one_too(valkey, tmp_path):
    async def work():
        path = tmp_path / "valkey.sock"
        who = urlsplit(os.environ["REDIS_URL"]).netloc.rpartition("@")[0]
        async with Between().stand(asyncio.start_unix_server, path=path):
            return await answered(f"unix://{who}@{path}?db={database()}")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(asyncio.wait_for(work(), 10)) == echoed(1)


def test_a_limit_of_the_url_is_one_for_each_answer(valkey, run):
    valkey.script_load(ECHO)
    with pytest.raises(TimeoutError):
        run(through(Between(lambda _: []), query="socket_timeout=0.05"))
    assert run(through(Between(), query="socket_timeout=60")) == [[b"k", "ä".encode(), 2]]


def test_a_connection_that_is_made_while_the_loop_stands_still_is_in_time(valkey, run, monkeypatch):
    monkeypatch.setattr("fred.valkey.LIMIT_S", 0.05)

    async def work():
        asking = asyncio.ensure_future(answered(url_of(None)))
        for _ in range(2):
            await asyncio.sleep(0)
        stand_still(0.2)
        return await asking

    assert run(work()) == echoed(1)


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_an_answer_may_come_in_pieces(valkey, run, cut):
    between = Between(lambda data: [data[at : at + cut] for at in range(0, len(data), cut)])
    assert run(through(between, runs=3)) == echoed(3)
    assert between.connections == 1


def test_what_a_server_pushes_is_no_answer(valkey, run):
    between = Between(lambda data: [b">2\r\n+news\r\n+1\r\n" + data + b">1\r\n+more\r\n"])
    assert run(through(between, runs=3)) == echoed(3)
    assert between.connections == 1


def test_an_answer_that_nobody_asked_for_is_never_the_next_ones(valkey, run):
    valkey.script_load(ECHO)
    between = Between(lambda data: [data + b"+OK\r\n"])
    assert run(through(between, runs=3)) == echoed(3)
    assert between.connections == 3


def test_an_answer_that_comes_after_who_asked_gave_up_does_no_harm(valkey, run):
    async def work():
        faults = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        link = ScriptLink(ECHO, lambda: url_of(None))
        await link.run(["k"], ["ä"])
        asking = asyncio.ensure_future(link.run(["k"], ["ä"]))
        await asyncio.sleep(0)  # it was sent
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.to_thread(wait_until, lambda: valkey.get("runs") == b"2")
        await asyncio.sleep(0)
        await link.close()
        return faults, await answered(url_of(None))

    assert run(work()) == ([], [echoed(3)[-1]])


def test_an_error_is_raised_and_the_connection_stays(valkey, run):
    async def work():
        between = Between()
        async with between.stand() as port:
            link = ScriptLink("return redis.call(ARGV[1], KEYS[1])", lambda: url_of(port))
            with pytest.raises(ResponseError, match="Wrong number"):
                await link.run(["k"], ["SET"])
            found = await link.run(["k"], ["INCR"])
            await link.close()
            return found, between.connections

    assert run(work()) == (1, 1)


def test_what_is_no_answer_at_all_is_raised(valkey, run):
    with pytest.raises(InvalidResponse):
        run(through(Between(lambda _: [b"HTTP/1.1 400 Bad Request\r\n"])))


def test_a_new_connection_that_breaks_is_not_made_anew_and_an_old_one_once(valkey, run):
    between = Between(lambda _: None)
    with pytest.raises(LinkError):
        run(through(between))
    assert between.connections == 1
    answers = iter([[b"*0\r\n"], None, None])
    between = Between(lambda _: next(answers))
    with pytest.raises(LinkError, match="Connection closed by server"):
        run(through(between, runs=2))
    assert between.connections == 2
