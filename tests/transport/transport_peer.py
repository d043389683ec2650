"""A process at the end of wires, told by pickles on its standard input what to do."""

from __future__ import annotations

import pickle
import sys

import torch

from rlinf_core.transport.checksum import fingerprint
from rlinf_core.transport.groups import GlooWire
from rlinf_core.transport.wires import here


def main(name: str, timeout: float) -> None:
    mine, wires = here(name, "cpu"), {}

    def say(answer):
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()

    say(mine)
    while True:
        try:
            verb, other, *rest = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if verb == "take":
            ticket, forms = rest
            wire = wires.setdefault((other.name, name), GlooWire(other, mine, timeout))
            say(fingerprint(wire.unpack(ticket, forms)))
        else:
            wire = wires.setdefault((name, other.name), GlooWire(mine, other, timeout))
            tensors = made(*rest)
            say((wire.pack(tensors), fingerprint(tensors)))
            wire.deliver()
            wire.finish()
            say("sent")


def made(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(300_000, generator=generator), torch.randn(3, 5, generator=generator)]


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
