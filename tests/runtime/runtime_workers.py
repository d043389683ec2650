"""Workers that get into trouble."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import numpy as np

from rlinf_core.errors import RuntimeFailure
from rlinf_core.runtime.worker import Worker


class Troubled(Worker):
    def pid(self):
        return os.getpid()

    def variable(self, name):
        return os.environ.get(name)

    def raise_end_of_file(self):
        raise EOFError("the file is shorter than it says")

    def leave(self, status):
        os._exit(status)

    def say(self, text):
        print(text)

    def jump(self, seconds):
        real = time.time
        time.time = lambda: real() + seconds

    def limit_files(self, size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def large(self):
        return np.zeros(1_000_000)

    def compute(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            np.ones((200, 200)) @ np.ones((200, 200))

    def stream(self, channel):
        number = 0
        while True:
            channel.put(np.full(100_000, number))
            number += 1

    def read(self, channel, diary):
        try:
            while True:
                channel.get()
        except RuntimeFailure as error:
            Path(diary).write_text(f"{type(error).__name__}: {error}")
            raise

    def put_keyed(self, channel, count):
        key = self.place.rank % 5
        for number in range(count):
            channel.put((key, self.place.rank, number, np.full(5_000, number)), key=key)

    def read_keyed(self, channel, count):
        got = []
        for _ in range(count):
            key, rank, number, block = channel.get(key=self.place.rank)
            assert (block == number).all()
            got.append((key, rank, number))
        return got


class Weird:
    """A dequeue policy that fails."""

    def turn(self, waiting, served):
        return 0

    def choose(self, weights, consumer, served):
        raise ZeroDivisionError("no weights at all")
