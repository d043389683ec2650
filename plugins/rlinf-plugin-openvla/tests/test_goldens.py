"""The network against the published code's own numbers, and mistakes that these would find."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from rlinf_plugin_openvla import llama, network, vit

from rlinf_core.api import ActionBins, Bounds

BINS = ActionBins(256, 32000)


def bounds(found, epsilon):
    config = found.spec["config"]
    statistics = config["norm_stats"][config["unnorm_key"]]["action"]
    return Bounds(statistics["q01"], statistics["q99"], statistics["mask"], epsilon)


def check_vision(found, net):
    features = net.vision_backbone(found["pixel_values"])
    found.check("patch_features", features)
    found.check("projected", net.see(found["pixel_values"]))


def check_logits(found, net):
    forced = found["forced_ids"]
    seen = net.see(found["pixel_values"])
    hidden = net.read(forced, torch.ones_like(forced, dtype=torch.bool), seen)[:, -8:]
    found.check("hidden", hidden)
    logits = net.logits(hidden)
    found.check("logits_action", logits[..., 31744:32064])
    found.check("logits_sample", logits[..., found["vocab_sample"]])
    found.check("logits_lse", logits.logsumexp(-1))


def decode(net, ids, mask, pixels, count, choose):
    """Decode as the policy does; returns tokens and what each was chosen by."""
    seen = net.see(pixels)
    memory = llama.KeyValues(seen.shape[1] + ids.shape[1] + count)
    hidden = net.read(ids, mask, seen, memory)[:, -1:]
    valid, tokens, logits = network.with_patches(mask, seen.shape[1]), [], []
    for _ in range(count):
        if tokens:
            valid = torch.cat([valid, valid.new_ones(len(valid), 1)], dim=1)
            hidden = net.step(tokens[-1], valid, memory)
        logits.append(net.logits(hidden))
        tokens.append(choose(logits[-1]))
    return torch.cat(tokens, dim=1), torch.cat(logits, dim=1)


def check_decoding(found, net):
    ids = found["input_ids"]
    mask, pixels = torch.ones_like(ids, dtype=torch.bool), found["pixel_values"]
    likeliest = lambda logits: BINS.choose(logits, 1.6, None)  # noqa: E731
    tokens, _ = decode(net, ids, mask, pixels, 7, likeliest)
    found.check("action_tokens", tokens)
    found.check("actions", bounds(found, 0.0).unnormalize(BINS.decode(tokens[0])))
    free, _ = decode(net, ids, mask, pixels, 7, lambda logits: logits.argmax(-1))
    found.check("free_tokens", free)
    found.check("free_actions", bounds(found, 0.0).unnormalize(BINS.decode(free[0])))


def check_batch(found, net):
    ids, mask = found["input_ids"], found["attention_mask"]
    pixels = found["pixel_values"][:, 0]
    scaled = bounds(found, 1e-8)
    tokens, logits = decode(net, ids, mask, pixels, 7, lambda x: BINS.choose(x, 1.0, None))
    found.check("next_logits", logits[:, 0, 31744:32064])
    found.check("greedy_tokens", tokens)
    found.check("greedy_actions", scaled.unnormalize(BINS.decode(tokens)))
    found.check("greedy_logprobs", BINS.score(logits, tokens, 1.0)[0])

    sampled = found["sampled_tokens"]
    found.check("sampled_actions", scaled.unnormalize(BINS.decode(sampled)))
    forced = torch.cat([ids, sampled[:, :-1]], dim=1)
    longer = torch.cat([mask, mask.new_ones(2, 6)], dim=1)
    hidden = net.read(forced, longer, net.see(pixels))[:, -7:]
    for name, temperature in (("t16", 1.6), ("t10", 1.0)):
        logp, entropy = BINS.score(net.logits(hidden), sampled, temperature)
        found.check(f"logprobs_{name}", logp)
        found.check(f"entropy_{name}", entropy)
    found.check("values", net.values(hidden[:, 0]))


CHECKS = {
    "openvla-vision": (check_vision,),
    "openvla-logits": (check_logits, check_decoding),
    "openvla-batch": (check_batch,),
}


def check_all(found, net):
    for check in CHECKS[found.spec["name"]]:
        check(found, net)


@pytest.mark.parametrize("name", CHECKS)
def test_golden(name, golden, make_network):
    found = golden(name)
    check_all(found, make_network(found))


def test_every_output_of_the_sets_is_compared(golden, make_network, monkeypatch):
    for name in CHECKS:
        found, compared = golden(name), set()
        net = make_network(found)
        monkeypatch.setattr(found, "check", lambda what, _, seen=compared: seen.add(what))
        check_all(found, net)
        assert compared == set(found.spec["outputs"])


# --- mistakes -------------------------------------------------------------------------------------


def tanh_gelu(monkeypatch):
    monkeypatch.setattr(vit.nn, "GELU", lambda: torch.nn.modules.activation.GELU("tanh"))


def last_block_too(monkeypatch):
    monkeypatch.setattr(vit, "list", lambda blocks: [*blocks, None], raising=False)


def positions_count_padding(monkeypatch):
    def count(valid):
        return torch.arange(valid.shape[1]).expand_as(valid)

    monkeypatch.setattr(network, "positions_of", count)


def padding_is_seen(monkeypatch):
    monkeypatch.setattr(network, "causal", lambda valid: llama.causal(torch.ones_like(valid)))


def patches_in_front(monkeypatch):
    real = torch.cat

    def cat(parts, dim=0):
        swap = len(parts) == 3 and parts[0].ndim == 3 and parts[0].shape[1] == 1
        return real([parts[1], parts[0], parts[2]] if swap and dim == 1 else parts, dim=dim)

    monkeypatch.setattr(network.torch, "cat", cat)


def another_bin(monkeypatch):
    monkeypatch.setattr(ActionBins, "decode", lambda self, ids: self.centers[254 - (ids % 255)])


def temperature_before_the_slice(monkeypatch):
    def score(self, logits, ids, temperature):
        whole = (logits / temperature).log_softmax(-1)
        logp = whole.gather(-1, ids[..., None])[..., 0]
        return logp, -(whole.exp() * whole).sum(-1)

    monkeypatch.setattr(ActionBins, "score", score)


def rope_five_percent_off(monkeypatch):
    real = network.make_llama
    monkeypatch.setattr(
        network, "make_llama", lambda text: real({**text, "rope_theta": 1.05 * text["rope_theta"]})
    )


def no_mask_of_statistics(monkeypatch):
    real = Bounds.unnormalize

    def unnormalize(self, x):
        self.mask = torch.ones_like(self.mask)
        return real(self, x)

    monkeypatch.setattr(Bounds, "unnormalize", unnormalize)


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        (tanh_gelu, "openvla-vision"),
        (last_block_too, "openvla-vision"),
        (rope_five_percent_off, "openvla-logits"),
        (patches_in_front, "openvla-logits"),
        (another_bin, "openvla-logits"),
        (no_mask_of_statistics, "openvla-logits"),
        (positions_count_padding, "openvla-batch"),
        (padding_is_seen, "openvla-batch"),
        (temperature_before_the_slice, "openvla-batch"),
    ],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_a_mistake_breaks_its_set(mistake, name, golden, make_network, monkeypatch):
    found = golden(name)
    mistake(monkeypatch)
    net = make_network(found)
    with pytest.raises(AssertionError, match="differs"):
        check_all(found, net)


# --- the full size --------------------------------------------------------------------------------


def test_the_published_size_is_counted_and_made(text_config):
    whole = network.Architecture.of(
        {
            "use_fused_vision_backbone": True,
            "image_resize_strategy": "resize-naive",
            "timm_model_ids": [
                "vit_large_patch14_reg4_dinov2.lvd142m",
                "vit_so400m_patch14_siglip_224",
            ],
            "image_sizes": [224, 224],
            "pad_token_id": 32000,
            "pad_to_multiple_of": 64,
            "n_action_bins": 256,
            "text_config": {"vocab_size": 32064, "pad_token_id": 32000},
        }
    )
    assert whole.parameters == 7_541_237_184
    with torch.device("meta"):
        made = network.OpenVLANetwork(whole)
    assert sum(p.numel() for p in made.parameters()) == 7_541_237_184
    assert dataclasses.asdict(whole.towers[0])["registers"] == 4
    assert (whole.bins, whole.action_end, whole.bos_id, whole.stop_id) == (256, 32000, 1, 2)
