"""What a coordinator gives browsers: logins, the proxy of its settings, the built page, and the way to the leader."""

from __future__ import annotations

from phalanx.api.server.page_access import Forwards, PageAccess
from phalanx.api.server.proxies import TrustedProxies
from phalanx.api.server.static_files import StaticFiles
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.logins import LoginAccess
from phalanx.dashboard import STATIC
from phalanx.settings import CoordinatorSettings as Section


def page_access(section: Section, logins: LoginAccess, forwards: Forwards, keys: Credentials) -> PageAccess:
    """As the settings say."""
    proxies = TrustedProxies(
        section.trusted_proxy,
        section.trusted_proxy_user_header,
        section.trusted_proxy_groups_header,
        dict(section.roles_by_name()),
        section.trusted_proxy_role,
    )
    logins.takes_proxy = bool(section.trusted_proxy)
    return PageAccess(logins, proxies, StaticFiles(STATIC), forwards, keys)
