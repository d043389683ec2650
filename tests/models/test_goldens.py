"""Images, action bins and normalisation against the published code's own numbers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from rlinf_core.models import images
from rlinf_core.models.actions import ActionBins
from rlinf_core.models.normalize import Bounds, ZScore, pad_last

SIZE = (224, 224)


def picture(config):
    """Return the source image [1, H, W, 3], which the set describes by a formula."""
    c = config["image"]
    y, x, k = np.meshgrid(
        np.arange(c["height"]), np.arange(c["width"]), np.arange(3), indexing="ij"
    )
    v = np.take(c["a"], k) * x + np.take(c["b"], k) * y + (x * y) // c["div"]
    v = np.abs(v % 510 - 255) * 3 // 4 + 60 * ((x // c["blk"] + y // c["blk"] + k) % 2)
    return torch.from_numpy(v.astype(np.uint8))[None]


@pytest.fixture(scope="module")
def pipeline(golden):
    found = golden("image-pipeline")
    source = picture(found.spec["config"])
    step = source.numel() // 16
    assert torch.equal(source.flatten()[::step][:16], found["image_check"])
    return found, source


def stacked(found, resized):
    config = found.spec["config"]
    return images.stack_normalized(resized, config["means"], config["stds"])[0, :, ::7, ::7]


def test_pillows_resize_is_exact_and_its_pixels_are_those_of_openvla(pipeline):
    found, source = pipeline
    resized = images.resize_pillow(source, SIZE)
    digest = hashlib.sha256(resized.numpy().tobytes()).hexdigest()
    assert digest == found.spec["sha256"]["resized_pil"]
    found.check("resized_pil", resized[0, ::2, ::2])
    found.check("pixel_values", stacked(found, resized))


def test_torchs_resize_is_exact_and_its_pixels_are_those_of_rlinf(pipeline):
    found, source = pipeline
    resized = images.resize_torch(source, SIZE)
    assert torch.equal(resized[0, ::2, ::2], found["resized_tensor"])  # the set would allow 1%
    pixels = stacked(found, resized)
    assert (pixels - found["pixel_values_tensor"]).abs().max() <= 2e-6


def test_the_two_resizes_differ_so_neither_can_stand_for_the_other(pipeline):
    found, source = pipeline
    with pytest.raises(AssertionError, match="resized_pil"):
        found.check("resized_pil", images.resize_torch(source, SIZE)[0, ::2, ::2])
    assert set(images.RESIZES) == {"pillow", "torch"}


def test_padded_resizes_are_those_of_openpi(pipeline):
    found, source = pipeline
    narrow = source[:, :, :192]
    client = images.resize_pillow_padded(narrow, SIZE)
    digest = hashlib.sha256(client[0].numpy().tobytes()).hexdigest()
    assert digest == found.spec["sha256"]["pi0_client"]
    found.check("pi0_client", client[0, ::2, ::2])
    padded = images.resize_torch_padded(narrow.float() / 255 * 2 - 1, SIZE)
    found.check("pi0_float", padded[0, ::7, ::7])


@pytest.mark.parametrize("resize", images.RESIZES.values())
def test_an_image_of_the_right_size_and_no_image_stay_as_they_are(resize):
    right = torch.randint(0, 256, (2, *SIZE, 3), dtype=torch.uint8)
    assert torch.equal(resize(right, SIZE), right)


def test_action_bins_are_those_of_openvla(golden):
    found = golden("action-tokenizer")
    config = found.spec["config"]
    bins = ActionBins(config["bins"], config["vocab_size"])
    assert bins.first == config["action_token_begin_idx"] + 1
    found.check("bin_edges", bins.edges)
    found.check("bin_centers", bins.centers)
    found.check("ids", bins.encode(found["actions"]))
    found.check("decoded", bins.decode(found["ids"]))
    found.check("odd_decoded", bins.decode(found["odd_ids"]))
    found.check("all_decoded", bins.decode(found["all_ids"]))
    fewer = ActionBins(config["second_bins"], config["vocab_size"])
    found.check("ids_second", fewer.encode(found["actions"]))
    found.check("decoded_second", fewer.decode(found["ids_second"]))


@pytest.mark.parametrize("kind", ["z", "q"])
def test_normalisation_is_that_of_openpi(kind, golden):
    found = golden("pi-normalize")
    width = found.spec["config"]["model_dim"]

    def make(what):
        if kind == "z":
            return ZScore(found[f"{what}_mean"].tolist(), found[f"{what}_std"].tolist())
        q01, q99 = found[f"{what}_q01"].tolist(), found[f"{what}_q99"].tolist()
        return Bounds(q01, q99, epsilon=1e-6)

    state, actions = make("state"), make("action")
    check = found.check
    check(f"state_{kind}", state.normalize(found["state"]))
    check(f"actions_{kind}", actions.normalize(found["actions"]))
    check(f"state_{kind}_padded", pad_last(found[f"state_{kind}"], width))
    check(f"actions_{kind}_padded", pad_last(found[f"actions_{kind}"], width))
    check(f"unnorm_{kind}", actions.unnormalize(found[f"model_out_{kind}"]))
    check(f"unnorm_state_{kind}", state.unnormalize(found[f"state_{kind}_padded"]))
