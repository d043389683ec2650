"""Which Ray: find one, or start one for the run, and take leave of it as it was found.

A cluster that was there keeps everything but this run's actors and reservation, which the runtime
takes away itself. One that was started for the run ends with it, and its folder with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import ray

from rlinf_core.api import RequestError, RuntimeFailure
from rlinf_plugin_ray.config import RayConfig

LONGEST = 32_768
"""Bytes of a variable that a new process is given; the system takes no more than about 128 kB."""

_PREFIX, _YOUNG = "rlinf-ray-", 10.0  # of its folder; seconds in which one may have no lock yet
_TOKEN = secrets.token_hex(32)  # for clusters that this process starts; Ray keeps the first it sees


class Cluster:
    """Ray, as this process is connected to it; where it has joined one before, it is that.

    Args:
        config: which Ray.
        slots: CPUs that the run needs; so many has a cluster that is started for it, at least.
        labels: of node groups; to all of them belongs the machine of such a cluster.

    Raises:
        RequestError: there is no such cluster, or this process does not fit to it.
    """

    def __init__(self, config: RayConfig, slots: int, labels: frozenset[str]) -> None:
        self.own = self._joined = False
        self._folder: Path | None = None
        self._lock: IO[str] | None = None  # held for as long as the folder is used
        if not ray.is_initialized():
            address = config.address or os.environ.get("RAY_ADDRESS") or last_started()
            self._joined = True
            if address in (None, "local"):
                self.own = True
                self._start(config, slots, labels)
            else:
                _join(str(address), config.log_to_driver)
        self.node = ray.get_runtime_context().get_node_id()

    def close(self) -> None:
        """Leave it; end it where it was started here."""
        if self._joined:
            ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()

    def _start(self, config: RayConfig, slots: int, labels: frozenset[str]) -> None:
        self._folder, self._lock = _make_folder()
        options: dict[str, Any] = {
            "num_cpus": max(slots, os.cpu_count() or 1),
            "resources": dict.fromkeys(labels, 1.0),
            "include_dashboard": False,
            "object_store_memory": config.object_store_memory,
            "_temp_dir": str(self._folder),
            # Memory of items that were read is free at once; no process waits for work that never
            # comes, as workers are actors, whose processes start when they do; and these are the
            # run itself, which should not give way to all others.
            "_system_config": {
                "free_objects_period_milliseconds": 100,
                "prestart_worker_first_driver": False,
                "worker_niceness": 0,
            },
        }
        try:
            with _fit_for_children():
                _init("local", config.log_to_driver, **options)
        except BaseException as error:
            self.close()
            if not isinstance(error, Exception):
                raise
            raise RuntimeFailure(f"Ray cannot be started on this machine: {error}") from error


def last_started() -> str | None:
    """Return the address of the cluster that ``ray start`` started here last, if it answers."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        address = (Path(folder) / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return None
    return address if answers(address) else None


def answers(address: str, seconds: float = 3.0) -> bool:
    """Return whether anything listens at ``HOST:PORT``."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError, OverflowError):
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
        return True
    return False


def _join(address: str, log_to_driver: bool) -> None:
    if address != "auto" and not answers(address):
        raise RequestError(
            f"nothing answers at {address}, where Ray was said to run. Start it with  ray start "
            "--head --port=6379  on the first machine, and check the address (cluster.runtime."
            "address, or RAY_ADDRESS)"
        )
    try:
        _init(address, log_to_driver)
    except ConnectionError:
        raise RequestError(
            "no Ray runs on this machine (cluster.runtime.address is 'auto'). Join it to a cluster "
            "with  ray start --address=HEAD:6379, or set cluster.runtime.address=local"
        ) from None
    except Exception as error:  # another version of Ray or of Python, a token that is missing
        raise RequestError(f"cannot join the Ray cluster at {address}: {error}") from error


def _init(address: str, log_to_driver: bool, **options: Any) -> None:
    answer = signal.getsignal(signal.SIGTERM)  # which Ray would take for itself
    _keep_from_output(log_to_driver)
    try:
        ray.init(
            address=address,
            log_to_driver=log_to_driver,
            logging_level=logging.ERROR,  # what goes wrong comes as an error
            **options,
        )
    except BaseException:
        ray.shutdown()  # what it has started or joined by then
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, answer)


def _keep_from_output(log_to_driver: bool) -> None:
    """Have Ray write to standard error what it would write among results, or not at all.

    There is no option for that: its notes about workers that died always come.
    """
    module = sys.modules["ray._private.worker"]
    write = _writers.setdefault("write", getattr(module, "print_worker_logs", None))
    if write is not None:
        module.print_worker_logs = (
            (lambda batch, sink, *more: write(batch, sys.stderr, *more))
            if log_to_driver
            else lambda *_: None
        )


_writers: dict[str, Any] = {}  # what Ray writes with


@contextlib.contextmanager
def _fit_for_children() -> Iterator[None]:
    """Show the processes of a new cluster no variable that is too long for one to start with.

    Where Ray would make up a secret for it and keep it in the user's home, it gets one that is not
    kept. What Ray sets meanwhile goes again. The loss of the terminal is the driver's to answer, as
    Ctrl-C is; Ray sees to the latter.
    """
    before = dict(os.environ)
    for name in too_long(before):
        del os.environ[name]
    if not any(name.startswith("RAY_AUTH_") for name in before):
        os.environ["RAY_AUTH_TOKEN"] = _TOKEN
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def too_long(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that no process can be started with."""
    return {n: v for n, v in environment.items() if len(os.fsencode(v)) > LONGEST}


def _make_folder() -> tuple[Path, IO[str]]:
    """Return a new folder for a cluster, and its lock; take away those of drivers that were killed.

    Sockets lie below it, and their paths may have no more than 107 bytes.
    """
    above = Path(tempfile.gettempdir())
    above = above if len(str(above)) <= 20 else Path("/tmp")
    for other in above.glob(f"{_PREFIX}*/lock"):
        with contextlib.suppress(OSError), other.open("w") as lock:  # else it is used, or not ours
            if time.time() - other.parent.stat().st_mtime > _YOUNG:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=above))
    lock = (folder / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock
