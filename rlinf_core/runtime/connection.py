"""What a driver and its child processes say to each other over private socket pairs."""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

_ROOM = socket.CMSG_SPACE(64 * array("i").itemsize)  # for descriptors that come with a message


class Failure(NamedTuple):
    """The last thing a child says when it failed."""

    traceback: str


class Connection:
    """One end of a private socket pair: whole pickles, and file descriptors beside them."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.fds: list[int] = []  # what came with the last message; the receiver closes them

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Send one message. Raises ``OSError`` where the other end is gone."""
        payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        head = struct.pack("!Q", len(payload))
        # in one piece, so that who is stopped meanwhile leaves no half of a small message behind
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
        sent = self._socket.sendmsg([head, payload], beside)
        if sent < len(head) + len(payload):
            self._socket.sendall((head + payload)[sent:])

    def wait(self, seconds: float) -> bool:
        """Return whether a message, or the end, comes within ``seconds``."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(1000 * max(seconds, 0.0)))

    def writable(self) -> bool:
        """Return whether a message of less than 100 kB can be sent without waiting, or fails."""
        poll = select.poll()
        poll.register(self._socket, select.POLLOUT)
        return bool(poll.poll(0))

    def receive(self) -> Any:
        """Wait for one message. Raises ``EOFError`` where the other end is gone."""
        try:
            head, beside, _, _ = self._socket.recvmsg(8, _ROOM)
            self.fds = [fd for *_, data in beside for fd in array("i", data)]
            for fd in self.fds:
                os.set_inheritable(fd, False)
            (size,) = struct.unpack("!Q", head + self._read(8 - len(head)))
            return pickle.loads(self._read(size))
        except ConnectionError as error:
            raise EOFError("the other end is gone") from error

    def _read(self, size: int) -> bytes:
        payload = bytearray()
        while len(payload) < size:
            piece = self._socket.recv(min(size - len(payload), 1 << 20))
            if not piece:
                raise EOFError("the other end is gone")
            if len(piece) == size:
                return piece
            payload += piece
        return bytes(payload)

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end; the other one sees the end of the stream."""
        self._socket.close()
