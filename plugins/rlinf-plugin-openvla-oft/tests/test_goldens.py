"""The network against the published code's own numbers, and mistakes that these would find."""

from __future__ import annotations

import pytest
import torch
from rlinf_plugin_openvla import llama, vit
from rlinf_plugin_openvla_oft import network

from rlinf_core.api import ActionBins, Bounds
from rlinf_core.testing import golden_weight

BINS = ActionBins(256, 32000)
LAYOUTS = {"rlinf": False, "official": True}  # and whether it has the stop token


def bounds(found, of):
    config = found.spec["config"]
    statistics = config["norm_stats"][config["unnorm_key"]][of]
    return Bounds(statistics["q01"], statistics["q99"], statistics["mask"], 1e-8)


def check_hidden(found, make):
    for layout, stop in LAYOUTS.items():
        net = make(found, stop_token=stop)
        ids, mask = found[f"{layout}_ids"], found[f"{layout}_mask"]
        if stop:  # the set has padding in front of BOS; here BOS is first
            ids, mask = bos_first(ids, mask)
        predicted = net.predict(ids, mask, found["pixel_values"], 56)
        found.check(f"{layout}_hidden", predicted.hidden)
        logits = net.logits(predicted.hidden)
        found.check(f"{layout}_logits", logits[:, found["positions"], 31744:32000])
        found.check(f"{layout}_tokens", BINS.choose(logits, 1.6, None))
        if stop:
            found.check("official_index", predicted.index)
            alone = found["oft_ids"]
            whole = torch.ones_like(alone, dtype=torch.bool)
            predicted = net.predict(alone, whole, found["pixel_values"][:1], 56)
            found.check("oft_hidden", predicted.hidden)


def bos_first(ids, mask):
    """Return ``[BOS][padding][text]`` of ``[padding][BOS][text]``."""
    ids, mask = ids.clone(), mask.clone()
    for row, first in enumerate(mask.long().argmax(1).tolist()):
        ids[row, first], ids[row, 0] = ids[row, 0].clone(), ids[row, first].clone()
        mask[row, first], mask[row, 0] = mask[row, 0].clone(), mask[row, first].clone()
    return ids, mask


def check_rl(found, make):
    scaled = bounds(found, "action")
    for layout, stop in LAYOUTS.items():
        ids, mask = found[f"{layout}_ids"], found[f"{layout}_mask"]
        if stop:
            ids, mask = bos_first(ids, mask)
        net = make(found, 1, stop_token=stop)
        predicted = net.predict(ids, mask, found["pixel_values"], 56)
        tokens, logits = found[f"{layout}_tokens"], net.logits(predicted.hidden)
        found.check(f"{layout}_actions", scaled.unnormalize(BINS.decode(tokens)))
        greedy = BINS.decode(BINS.choose(logits, 1.0, None)).unflatten(1, (8, 7))
        found.check(f"{layout}_greedy_actions", scaled.unnormalize(greedy))
        for name, temperature in (("t16", 1.6), ("t10", 1.0)):
            logp, entropy = BINS.score(logits, tokens.flatten(1), temperature)
            found.check(f"{layout}_logprobs_{name}", logp)
            found.check(f"{layout}_entropy_{name}", entropy)
        found.check(f"{layout}_values_chunk_level", net.values(predicted.summary))
        critic = net.value_head.state_dict()
        net.add_value_head(8)  # the same critic with a value for each action
        for name, shape in found.spec["weights_if_action_level"].items():
            critic[name.removeprefix("value_head.")] = golden_weight(name, shape)
        net.value_head.load_state_dict(critic)
        found.check(f"{layout}_values_action_level", net.values(predicted.summary))


def check_l1(found, make):
    net = make(found, stop_token=True, state=8, action=7)
    state = bounds(found, "proprio").normalize(found["proprio_raw"], clip=True)
    found.check("proprio", state)
    ids = found["input_ids"]
    mask = torch.ones_like(ids, dtype=torch.bool)
    predicted = net.predict(ids, mask, found["pixel_values"], 56, state.float()[None])
    found.check("hidden", predicted.hidden)
    normal = net.action_head(predicted.hidden)
    found.check("normalized", normal)
    found.check("actions", bounds(found, "action").unnormalize(normal[0]))


def check_film(found, make):
    net = make(found, stop_token=True, film=True)
    ids = found["input_ids"]
    mask = torch.ones_like(ids, dtype=torch.bool)
    language = net.language(ids, mask)
    found.check("language_mean", language)
    found.check("patch_features", net.vision_backbone(found["pixel_values"], language))
    found.check("hidden", net.predict(ids, mask, found["pixel_values"], 56).hidden)


CHECKS = {
    "oft-hidden": check_hidden,
    "oft-rl": check_rl,
    "oft-l1": check_l1,
    "oft-film": check_film,
}


@pytest.mark.parametrize("name", CHECKS)
def test_golden(name, golden, make_network):
    CHECKS[name](golden(name), make_network)


def test_every_output_of_the_sets_is_compared(golden, make_network, monkeypatch):
    for name, check in CHECKS.items():
        found, compared = golden(name), set()
        monkeypatch.setattr(found, "check", lambda what, _, seen=compared: seen.add(what))
        check(found, make_network)
        assert compared == set(found.spec["outputs"])


# --- mistakes -------------------------------------------------------------------------------------


def causal_mask(monkeypatch):
    real = network.OFTNetwork.run

    def run(self, sequence, mask, positions, memory=None):
        return real(self, sequence, llama.causal(mask[:, 0, 0]), positions, memory)

    monkeypatch.setattr(network.OFTNetwork, "run", run)


def placeholders_that_are_not_zero(monkeypatch):
    real = torch.Tensor.new_zeros

    def new_zeros(self, *shape):
        return real(self, *shape) + 0.01

    monkeypatch.setattr(torch.Tensor, "new_zeros", new_zeros)


def the_other_layout(monkeypatch):
    real = network.OFTNetwork.__init__

    def init(self, architecture, stop_token, **options):
        real(self, architecture, not stop_token, **options)

    monkeypatch.setattr(network.OFTNetwork, "__init__", init)


def read_one_position_late(monkeypatch):
    real = torch.arange

    def late(*args, **given):
        return real(*args, **given) + (len(args) == 1 and "device" in given)

    monkeypatch.setattr(torch, "arange", late)


def temperature_after_normalising(monkeypatch):
    def score(self, logits, ids, temperature):
        logp = logits[..., self.first : self.end].log_softmax(-1) / temperature
        return logp.gather(-1, (ids - self.first)[..., None])[..., 0], -(logp.exp() * logp).sum(-1)

    monkeypatch.setattr(ActionBins, "score", score)


def no_clipping_of_the_state(monkeypatch):
    real = Bounds.normalize
    monkeypatch.setattr(Bounds, "normalize", lambda self, x, clip=False: real(self, x))


def dimensions_side_by_side_the_wrong_way(monkeypatch):
    def forward(self, hidden):
        steps = hidden.unflatten(1, (self.action, -1)).transpose(1, 2)
        return self.model(steps.flatten(2))

    monkeypatch.setattr(network.L1Head, "forward", forward)


def film_without_the_one(monkeypatch):
    def forward(self, x, language):
        scale, shift = (layer(language)[:, None] for layer in (self.scale, self.shift))
        return self.block(x, lambda attended: attended * scale + shift)

    monkeypatch.setattr(network.FiLMBlock, "forward", forward)


def film_after_the_block(monkeypatch):
    def forward(self, x, language):
        scale, shift = (layer(language)[:, None] for layer in (self.scale, self.shift))
        return self.block(x) * (1 + scale) + shift

    monkeypatch.setattr(network.FiLMBlock, "forward", forward)


def tanh_gelu(monkeypatch):
    monkeypatch.setattr(vit.nn, "GELU", lambda: torch.nn.modules.activation.GELU("tanh"))


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        (causal_mask, "oft-hidden"),
        (placeholders_that_are_not_zero, "oft-hidden"),
        (the_other_layout, "oft-hidden"),
        (read_one_position_late, "oft-hidden"),
        (temperature_after_normalising, "oft-rl"),
        (no_clipping_of_the_state, "oft-l1"),
        (dimensions_side_by_side_the_wrong_way, "oft-l1"),
        (film_without_the_one, "oft-film"),
        (film_after_the_block, "oft-film"),
        (tanh_gelu, "oft-film"),
    ],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_a_mistake_breaks_its_set(mistake, name, golden, make_network, monkeypatch):
    found = golden(name)
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="differs"):
        CHECKS[name](found, make_network)
