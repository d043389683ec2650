"""Every link of every page leads somewhere, and every page stands in the navigation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {
        re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        for heading in HEADING.findall(text)
    }


def pages(book: Any) -> Iterator[Path]:
    yield from book.DOCS.rglob("*.md")
    yield from book.ROOT.glob("*.md")
    yield from book.ROOT.glob("plugins/*/README.md")


def test_links_lead_somewhere(book: Any) -> None:
    dead = []
    for page in pages(book):
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            path = (page.parent / file).resolve() if file else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                dead.append(f"{page.relative_to(book.ROOT)}: {target}")
    assert not dead


def test_every_page_stands_in_the_navigation_once(book: Any) -> None:
    def leaves(part: Any) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        else:
            for item in part.values() if isinstance(part, dict) else part:
                yield from leaves(item)

    settings = yaml.safe_load((book.ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    named = list(leaves(settings["nav"]))
    there = {str(path.relative_to(book.DOCS)) for path in book.DOCS.rglob("*.md")}
    assert sorted(named) == sorted(there)
    assert settings["strict"] is True
