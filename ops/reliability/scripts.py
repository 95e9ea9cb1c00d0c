"""The bytes that a fuzzer's connections send: frames of every API, or a client's steps up to authentication, mutated.

A script is a generator that yields bytes to send and is sent the received bytes; it runs over plain text or inside TLS
alike. Each of a stranger consists of a number of steps like a client's, and then steps that are mutated.
"""

from __future__ import annotations

import itertools
import random
import ssl
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from ops.reliability.frames import Template
from ops.reliability.mutations import Mutator
from ops.reliability.wire import CLIENT_ID, RECEIVE_BYTES
from ops.secured import PASSWORD, PLAIN, SCRAM, USER
from rotunda.broker.client import sasl
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey

#: Yields bytes to send, is sent received bytes, and returns a whole response.
Steps = Generator[bytes, bytes | None, bytes]
#: Frames in flight.
AT_ONCE = 48
MECHANISMS = (PLAIN, SCRAM, "OAUTHBEARER", "GSSAPI", "")
#: Maximum number of frames of a connection that the broker keeps serving.
MOST_FRAMES = 12
VERSIONS_SHARE = 0.7
_SIZE_BYTES = 4


class Script:
    """The steps of one connection, and whether a mutated one is in progress.

    One that `may_wait` has requests that the broker may hold.
    """

    def __init__(self, port: int, *, may_wait: bool = False) -> None:
        self.port, self.may_wait = port, may_wait
        self.steps: Steps = anything(b"")
        self.is_mutated = may_wait


class Barrage:
    """Frames of every version of every API, many in flight on each connection; `counts` has the responses.

    Frames after the one that closed its connection are sent again on another one.
    """

    def __init__(self, source: random.Random, templates: Sequence[Template], port: int, counts: Any) -> None:
        self._frames = mutated_frames(list(templates), source)
        self._again: deque[bytes] = deque()
        self._port, self._counts = port, counts

    def draw(self) -> Script:
        script = Script(self._port, may_wait=True)
        script.steps = self._steps()
        return script

    def _steps(self) -> Steps:
        waiting: deque[bytes] = deque()
        try:
            while True:
                while len(waiting) < AT_ONCE:
                    waiting.append(self._again.popleft() if self._again else next(self._frames))
                data = yield b"".join(waiting)
                while waiting:
                    size = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "big")
                    if len(data) < max(size, _SIZE_BYTES):
                        data += yield b""
                        continue
                    data = data[size:]
                    waiting.popleft()
                    self._counts.answered += 1
                    self._counts.frames += 1
        finally:
            self._again.extend(itertools.islice(waiting, 1, None))


def mutated_frames(templates: list[Template], source: random.Random) -> Iterator[bytes]:
    """Yield mutated frames without end, every version of every API as often as any other, but for expensive ones."""
    mutated = Mutator(source, templates).mutated
    while True:
        source.shuffle(templates)
        yield from map(mutated, templates)


class PlainText:
    """A connection as it is."""

    def open(self) -> Steps:
        return b""
        yield

    def ask(self, frame: bytes) -> Steps:
        """Send a frame and return its response."""
        received = yield frame
        while not is_whole(received):
            received += yield b""
        return received


class Secure:
    """A connection inside TLS."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._unsent = b""

    def flight(self, received: bytes = b"") -> bytes:
        """Continue the handshake; return the bytes to send. Raises ssl.SSLError when it has failed."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read()
        self._unsent = self._outgoing.read()
        return b""

    def open(self) -> Steps:
        """Shake hands; the last flight is sent with the first frame."""
        flight = self.flight()
        while flight:
            flight = self.flight((yield flight))
        return b""

    def records(self, frame: bytes) -> bytes:
        self._tls.write(frame)
        unsent, self._unsent = self._unsent, b""
        return unsent + self._outgoing.read()

    def ask(self, frame: bytes) -> Steps:
        """Send a frame and return its response."""
        sent, answer = self.records(frame), b""
        while not is_whole(answer):
            self._incoming.write((yield sent))
            sent = b""
            try:
                while data := self._tls.read(RECEIVE_BYTES):
                    answer += data
            except ssl.SSLWantReadError:
                continue
            raise ConnectionResetError
        return answer


Layer = PlainText | Secure


class Strangers:
    """Clients that have not authenticated."""

    def __init__(
        self,
        source: random.Random,
        templates: list[Template],
        ports: Mapping[str, int],
        context: ssl.SSLContext,
        counts: Any,
    ) -> None:
        self._source, self._ports, self._context, self._counts = source, ports, context, counts
        self._templates = templates
        self._of_versions = [each for each in templates if each.frame[4:6] == b"\0\x12"]
        self._mutator = Mutator(source, templates)
        inside = (self.before, self.handshake, self.first_token, self.last_token, self.again)
        self._inside: tuple[Callable[[Script, Layer], Steps], ...] = inside
        self._of_tls = (self.hello, self.last_flight, self.record)

    def draw(self) -> Script:
        draw = self._source.random()
        if draw < 1 / 4:
            stranger = Script(self._ports[self._source.choice(("SSL", "SASL_SSL"))])
            stranger.steps = self._source.choice(self._of_tls)(stranger)
            return stranger
        is_secure = draw < 1 / 2
        stranger = Script(self._ports["SASL_SSL" if is_secure else "SASL_PLAINTEXT"])
        layer = Secure(self._context) if is_secure else PlainText()
        stranger.steps = self._source.choice(self._inside)(stranger, layer)
        return stranger

    # ---- frames ----

    def before(self, stranger: Script, layer: Layer) -> Steps:
        """Send ApiVersions, and requests that need authentication first."""
        yield from layer.open()
        for _ in range(MOST_FRAMES):
            of_versions = self._source.random() < VERSIONS_SHARE
            template = self._source.choice(self._of_versions if of_versions else self._templates)
            yield from self._try(stranger, layer.ask(self._mutator.mutated(template)))
        return b""

    def handshake(self, stranger: Script, layer: Layer) -> Steps:
        yield from layer.open()
        for _ in range(MOST_FRAMES):
            yield from self._try(stranger, layer.ask(self._mutated(self._named())))
        return b""

    def first_token(self, stranger: Script, layer: Layer) -> Steps:
        """Name a mechanism, and show a mutated token, in a request or bare (`H08`)."""
        yield from layer.open()
        mechanism = self._source.choice((PLAIN, SCRAM))
        is_bare = self._source.random() < 1 / 3
        yield from layer.ask(handshake(mechanism, 0 if is_bare else 1))
        token = next(sasl.exchange(mechanism, USER, PASSWORD, ""))
        yield from self._try(stranger, layer.ask(self._with_token(token, is_bare=is_bare)))
        return b""

    def last_token(self, stranger: Script, layer: Layer) -> Steps:
        """Begin like a client with the right password, and end with a mutated proof."""
        yield from layer.open()
        yield from layer.ask(handshake(SCRAM, 1))
        exchange = sasl.exchange(SCRAM, USER, PASSWORD, "")
        answer = yield from layer.ask(authenticate(next(exchange)))
        token = codec.decode_response(ApiKey.SASL_AUTHENTICATE, 2, answer, _SIZE_BYTES, len(answer)).auth_bytes
        yield from self._try(stranger, layer.ask(self._with_token(exchange.send(bytes(token)), is_bare=False)))
        return b""

    def again(self, stranger: Script, layer: Layer) -> Steps:
        """Authenticate, and then again with mutated frames (`B24`)."""
        yield from layer.open()
        yield from layer.ask(handshake(PLAIN, 1))
        token = next(sasl.exchange(PLAIN, USER, PASSWORD, ""))
        yield from layer.ask(authenticate(token))
        for _ in range(MOST_FRAMES):
            is_named = self._source.random() < 1 / 2
            frame = self._mutated(self._named()) if is_named else self._with_token(token, is_bare=False)
            yield from self._try(stranger, layer.ask(frame))
        return b""

    # ---- TLS itself ----

    def hello(self, stranger: Script) -> Steps:
        return (yield from self._try(stranger, anything(self._mutator.of_bytes(Secure(self._context).flight()))))

    def last_flight(self, stranger: Script) -> Steps:
        """End the handshake with a mutated flight, with a request after it."""
        layer = Secure(self._context)
        yield from layer.open()
        sent = self._mutator.of_bytes(layer.records(self._templates[0].frame))
        return (yield from self._try(stranger, anything(sent)))

    def record(self, stranger: Script) -> Steps:
        layer = Secure(self._context)
        yield from layer.open()
        yield from layer.ask(self._source.choice(self._of_versions).frame)
        sent = self._mutator.of_bytes(layer.records(self._source.choice(self._templates).frame))
        return (yield from self._try(stranger, anything(sent)))

    # ---- their parts ----

    def _try(self, stranger: Script, steps: Steps) -> Steps:
        """Run mutated steps to their end, and count them."""
        stranger.is_mutated = True
        answer = yield from steps
        stranger.is_mutated = False
        self._counts.answered += 1
        self._counts.frames += 1
        return answer

    def _named(self) -> bytes:
        return handshake(self._source.choice(MECHANISMS), self._source.randrange(2))

    def _mutated(self, frame: bytes) -> bytes:
        return self._mutator.mutated(Template(frame, ()))

    def _with_token(self, token: bytes, *, is_bare: bool) -> bytes:
        """Return a token that has been mutated, or in a request that has."""
        if self._source.random() < 1 / 2:
            token = self._mutator.of_bytes(token)
            return sized(token) if is_bare else authenticate(token)
        return self._mutated(sized(token) if is_bare else authenticate(token))


def anything(sent: bytes) -> Steps:
    return (yield sent)


def is_whole(received: bytes) -> bool:
    size = int.from_bytes(received[:_SIZE_BYTES], "big")
    return len(received) >= _SIZE_BYTES + size if len(received) >= _SIZE_BYTES else False


def sized(token: bytes) -> bytes:
    return len(token).to_bytes(_SIZE_BYTES, "big") + token


def handshake(mechanism: str, version: int) -> bytes:
    return codec.encode_request(ApiKey.SASL_HANDSHAKE, version, 1, CLIENT_ID, {"mechanism": mechanism})


def authenticate(token: bytes) -> bytes:
    return codec.encode_request(ApiKey.SASL_AUTHENTICATE, 2, 1, CLIENT_ID, {"auth_bytes": token})
