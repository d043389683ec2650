"""What the options take, and what they refuse."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from rlinf_plugin_ray.config import RayConfig


@pytest.mark.parametrize(
    "address", [None, "auto", "local", "10.0.0.1:6379", "head.lab:6379", "[::1]:6379"]
)
def test_addresses_of_clusters_are_taken(address: str | None) -> None:
    assert RayConfig(address=address).address == address


def test_rays_client_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(ValidationError, match="start the run on a machine of the cluster"):
        RayConfig(address="ray://10.0.0.1:10001")


@pytest.mark.parametrize("address", ["10.0.0.1", "head:", "head:six", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="wanted 'auto', 'local' or HOST:PORT"):
        RayConfig(address=address)
