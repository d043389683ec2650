"""Toolkit: what runtimes are built of, for the authors of more; ``rlinf_core.api.toolkit``.

Names only, each explained where it is made. A runtime keeps the state of its channels in
``ItemQueue`` and of its leases in ``Leases``, makes workers with ``make_worker``, sends items as
``pack`` leaves them, and times with ``Timer``; how calls and items travel is its own.
"""

from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.runtime.dequeue import Fifo
from rlinf_core.runtime.lease import Leases
from rlinf_core.runtime.limits import processors
from rlinf_core.runtime.packing import pack, unpack
from rlinf_core.runtime.process import portable
from rlinf_core.runtime.queue import ItemQueue, Request
from rlinf_core.runtime.remote import RemoteTraceback
from rlinf_core.runtime.timer import MOST_SPANS, Timer
from rlinf_core.runtime.worker import check_name, make_worker, places, public_method, take_notes

__all__ = [
    "MOST_SPANS",
    "Fifo",
    "ItemQueue",
    "Leases",
    "RemoteTraceback",
    "Request",
    "Timer",
    "check_name",
    "make_worker",
    "pack",
    "places",
    "portable",
    "processors",
    "public_method",
    "resolve_ref",
    "take_notes",
    "unpack",
]
