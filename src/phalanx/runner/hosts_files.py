"""The hosts files of attempts whose tasks know each other by name: written at the start, and when peers come later."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.model.orders import AttemptKey, Roll, Start, key_text
from phalanx.logger import logger
from phalanx.runner.environment import LOOPBACK, Standing
from phalanx.runner.log_files import HOSTS, LogPath
from phalanx.runner.peers import Member, hosts_text, members_of, subdomain_of
from phalanx.runner.processes import Machine
from phalanx.runner.turn import RunnerEngine

log = logger("runner")


class HostsFiles:
    """Those of one runner."""

    def __init__(
        self, engine: RunnerEngine, machine: Machine, path: Callable[[AttemptKey, str], LogPath]
    ) -> None:
        self._engine = engine
        self._machine = machine
        self._path = path
        self._keys: set[AttemptKey] = set()  # of attempts that have one
        engine.introduce = self.introduce

    def write(self, start: Start, place: Standing, env: dict[str, str]) -> dict[str, str]:
        """Write where the peers of an attempt are, if it has any; what its namespaces have of that."""
        if not place.subdomain:
            return {}
        path = self._path(start.key, HOSTS)
        own = Member(start.key[1], place.hostname, start.grant.address or self._engine.address or LOOPBACK)
        self._machine.write_hosts(path, hosts_text(list(place.members), place.subdomain, own))
        self._keys.add(start.key)
        env["PHALANX_HOSTS"] = str(path)
        return {"hostname": place.hostname, "hosts": str(path)} if self._engine.sets_names else {}

    def introduce(self, roll: Roll) -> None:
        """Tell the attempts of a job that run here where its other members are."""
        brief = self._engine.state.briefing.any_brief(roll.job)
        members = members_of(brief, roll) if brief is not None else []
        for key in [each for each in self._keys if each[0] == roll.job]:
            own = next((each for each in members if each.position == key[1]), None)
            if brief is None or own is None:
                continue
            try:
                text = hosts_text(members, subdomain_of(brief), own)
                self._machine.write_hosts(self._path(key, HOSTS), text)
            except OSError as error:
                log.warning("a hosts file cannot be written", key=key_text(key), why=str(error))

    def adopt(self, key: AttemptKey) -> None:
        """An earlier runner may have written one."""
        if self._machine.has_artifacts(self._path(key, HOSTS)):
            self._keys.add(key)

    def remove(self, key: AttemptKey) -> None:
        if key in self._keys:
            self._keys.discard(key)
            self._machine.remove_hosts(self._path(key, HOSTS))
