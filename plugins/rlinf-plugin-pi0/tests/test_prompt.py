"""Tokenizers of each format, padding and cutting."""

from __future__ import annotations

import numpy as np
import pytest
from rlinf_plugin_pi0 import prompt
from tokenizers import Tokenizer, models, pre_tokenizers

from rlinf_core.api import RequestError


@pytest.fixture
def json_file(tmp_path):
    words = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3, "push": 4, "the": 5, "cube": 6}
    fast = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_prompt_is_padded_on_the_right_and_begins_with_bos(json_file):
    tokenizer = prompt.load_tokenizer(str(json_file))
    parts = [prompt.plain_parts("push_the cube"), prompt.plain_parts("push")]
    tokens, mask = prompt.tokenize(tokenizer, parts, 6)
    assert tokens.tolist() == [[2, 4, 5, 6, 0, 0], [2, 4, 0, 0, 0, 0]]
    assert mask.sum(axis=1).tolist() == [4, 2]


def test_a_folder_is_looked_through(json_file, tmp_path):
    assert isinstance(prompt.load_tokenizer(str(tmp_path)), prompt.JsonTokenizer)


def test_a_prompt_that_is_too_long_is_cut_with_a_warning(json_file):
    tokenizer = prompt.load_tokenizer(str(json_file))
    with pytest.warns(UserWarning, match="longer than model.max_tokens = 3"):
        tokens, mask = prompt.tokenize(tokenizer, [("push the cube",)], 3)
    assert tokens.tolist() == [[2, 4, 5]]
    assert mask.all()


def test_bytes_need_no_file():
    tokenizer = prompt.load_tokenizer("bytes")
    tokens, mask = prompt.tokenize(tokenizer, [("aé", "\n")], 7)
    assert tokens[0, mask[0]].tolist() == [2, *(3 + b for b in "aé\n".encode())]


def test_sentencepiece_models_are_read(tmp_path):
    pieces = pytest.importorskip("sentencepiece")
    lines = iter(["push the cube to the goal", "pick up the bowl", "open the drawer"] * 50)
    pieces.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_prefix=str(tmp_path / "paligemma_tokenizer"),
        vocab_size=40,
        bos_id=2,
        eos_id=1,
        pad_id=0,
        unk_id=3,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    tokenizer = prompt.load_tokenizer(str(tmp_path / "paligemma_tokenizer.model"))
    own = pieces.SentencePieceProcessor(model_file=str(tmp_path / "paligemma_tokenizer.model"))
    tokens, mask = prompt.tokenize(tokenizer, [prompt.plain_parts("push the cube")], 30)
    wanted = [*own.encode("push the cube", add_bos=True), *own.encode("\n")]
    assert tokens[0, mask[0]].tolist() == wanted


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "where no tokenizer is"), ("{", "cannot read the tokenizer"), ("bare", "<bos>")],
)
def test_what_is_no_tokenizer_is_refused(content, words, tmp_path):
    if content == "bare":
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    elif content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(RequestError, match=words):
        prompt.load_tokenizer(str(tmp_path))


def test_every_bin_of_a_state_has_its_number():
    edges = np.linspace(-1, 1, 257)[:-1]
    assert prompt.state_bins(edges).tolist() == list(range(256))
    assert prompt.state_bins(np.array([-1.01, 1.0, 7.0])).tolist() == [-1, 255, 255]
