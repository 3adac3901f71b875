"""The settings of a trusted proxy: what they become, and what is refused."""

from __future__ import annotations

import pytest

from phalanx.errors import ConfigError
from phalanx.settings_proxy import ProxySettings


def test_nothing_is_trusted_by_default():
    settings = ProxySettings()
    settings.check_proxy()
    assert (settings.trusted_proxy, dict(settings.roles_by_name())) == ((), {})


def test_roles_are_by_user_or_group():
    settings = ProxySettings(trusted_proxy_roles=("user:ada=admin", "group:ml team=user", "group:a/b=viewer"))
    assert dict(
        ProxySettings(trusted_proxy_roles=("user:ada=admin", "group:a/b=viewer")).roles_by_name()
    ) == {
        "user:ada": "admin",
        "group:a/b": "viewer",
    }
    with pytest.raises(ConfigError, match="ml team"):
        settings.check_proxy()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trusted_proxy": ("proxy.example.com",)}, "trusted_proxy"),
        ({"trusted_proxy": ("10.0.0.0/99",)}, "trusted_proxy"),
        ({"trusted_proxy_role": "root"}, "trusted_proxy_role"),
        ({"trusted_proxy_roles": ("ada=admin",)}, "trusted_proxy_roles"),
        ({"trusted_proxy_roles": ("user:ada=root",)}, "trusted_proxy_roles"),
        ({"trusted_proxy_user_header": "Authorization"}, "Authorization"),
        ({"trusted_proxy_groups_header": "cookie"}, "cookie"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, object], said: str):
    with pytest.raises(ConfigError, match=said):
        ProxySettings(**fields).check_proxy()  # type: ignore[arg-type]
