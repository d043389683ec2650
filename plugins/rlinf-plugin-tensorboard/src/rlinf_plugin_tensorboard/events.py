"""An event file: what TensorBoard reads, one record after another, written at once.

TensorBoard's own writer needs a thread and, where TensorFlow is installed, imports it. A file is
but a sequence of ``Event`` messages in TensorBoard's record format, so this one is written with
Python's own file and read by TensorBoard as any other. What stands in the events is decided in
``logger.py``.
"""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

VERSION = "brain.Event:2"
"""The first record of a file; from version 2 on a START tells readers what to drop."""
_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\..*")


class EventFile:
    """A new event file in a folder that may hold those of earlier tries.

    Readers take the files of a folder in the order of their names and, where a file begins with
    START at a step, drop what earlier files hold at that step and later.

    Args:
        folder: where to write; made if it is not there.
        first_step: the last step that earlier tries keep; 0 keeps nothing but step 0.

    Attributes:
        resumed: whether there were files of earlier tries.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        numbers = [int(m[1]) for p in folder.iterdir() if (m := _NAME.fullmatch(p.name))]
        self.resumed = bool(numbers)
        # The name begins with the time; never with one that sorts before an earlier file's.
        number = max(int(time.time()), *(n + 1 for n in numbers), 0)
        name = f"events.out.tfevents.{number:010d}.{socket.gethostname()}.{os.getpid()}"
        self.path = folder / name
        self._file = self.path.open("xb")
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=time.time(), file_version=VERSION))
        if self.resumed:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=first_step + 1, session_log=start))
        self._file.flush()

    def add(self, step: int, *summaries: Summary) -> None:
        """Write summaries of a step and hand them to the system at once."""
        for summary in summaries:
            self._write(Event(wall_time=time.time(), step=step, summary=summary))
        self._file.flush()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
