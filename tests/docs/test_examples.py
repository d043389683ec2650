"""The examples of the tutorial and the how-to pages, from top to bottom as a reader meets them."""

from __future__ import annotations

import contextlib
import io
import subprocess
from pathlib import Path
from typing import Any

from rlinf_core.config.validate import load_run


def test_every_example_of_a_page_works(page: str, book: Any, reader: Any) -> None:
    written: dict[str, str] = {}  # run files that no command has shown yet
    for block in book.blocks(page):
        match block.language:
            case "python" | "toml" | "yaml" if block.title:
                reader.write(block)
                if block.language == "python":
                    compile(block.text, block.title, "exec")
                if book.is_run_file(block.title):
                    written[block.title] = block.place
            case "yaml":
                reader.forget()
                book.check_fragment(block.text, reader.folder)
            case "console" if block.run:
                for command, expected in block.commands():
                    actual = reader.run(command)
                    shown = f"printed\n{actual}\nand the page shows\n{expected}"
                    assert book.matches(expected, actual, command), f"{block.place}: {shown}"
                    written = {k: v for k, v in written.items() if k not in command}
            case "console":
                for command, _ in block.commands():
                    book.check_options(command)
            case "text":
                pass
            case _:
                raise AssertionError(f"{block.place}: nobody would check this {block.language}")
    for title, place in written.items():
        assert load_run(title).path == reader.folder / title, place


def test_the_tutorials_script_reads_the_metrics_of_a_run(
    book: Any, reader: Any, toy_run: Any
) -> None:
    (reader.folder / "runs").mkdir()
    (reader.folder / "runs" / "quickstart").symlink_to(toy_run.folder)
    script = next(b for b in book.blocks("tutorial/first-run.md") if b.title == "look.py")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(script.text, "look.py", "exec"), {})
    assert out.getvalue().startswith("10 ")


def test_the_script_that_evaluates_all_checkpoints(
    book: Any, reader: Any, toy_run: Any, monkeypatch: Any
) -> None:
    (reader.folder / "runs").mkdir()
    (reader.folder / "runs" / "cart").symlink_to(toy_run.folder)
    blocks = book.blocks("how-to/resume-and-evaluate.md")
    script = next(b for b in blocks if b.title == "evaluate_all.py").text

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[0] == "rlinf"
        typed = [toy_run.file if word == "cart.yaml" else word for word in command[1:]]
        typed = [str(Path(word).resolve()) if Path(word).exists() else word for word in typed]
        code, out, err = toy_run.rlinf(*typed)
        return subprocess.CompletedProcess(command, code, out, err)

    monkeypatch.setattr(subprocess, "run", run)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(script, "evaluate_all.py", "exec"), {})
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["step-10"]
    assert " [" in out.getvalue()


def test_python_examples_say_which_file_they_are(page: str, book: Any) -> None:
    untitled = [b.place for b in book.blocks(page) if b.language == "python" and not b.title]
    assert not untitled


def test_every_fence_is_read(page: str, book: Any) -> None:
    text = (book.DOCS / page).read_text(encoding="utf-8")
    fences = [line for line in text.splitlines() if line.lstrip().startswith("```")]
    assert len(fences) == 2 * len(book.blocks(page))
    assert text.count("<!-- run -->") == sum(b.run for b in book.blocks(page))


def test_no_page_names_a_place_of_one_machine(book: Any) -> None:
    for path in [*book.DOCS.rglob("*.md"), *book.ROOT.glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        for place in ("/tmp/", "/root/", "/home/"):
            assert place not in text, Path(path).name


def test_output_is_really_compared(book: Any) -> None:
    matches = book.matches
    assert matches("error: a ... c\n", "error: a b\nb c\n", "rlinf train x")
    assert not matches("error: steps: found 0\n", "error: steps: found 1\n", "rlinf train x")
    assert not matches("error: a\n", "error: a\nmore\n", "rlinf plugins list")
    assert matches("[ 1.5 s] kl 0.1\n", "[  12.25 s] kl 3\n", "rlinf train x")
    assert not matches("[ 1.5 s] kl 0.1\n", "[ 1.5 s] return 0.1\n", "rlinf train x")
