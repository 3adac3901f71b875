"""The first processes of attempts that run, as sessions need them: where they are, and whose.

Of an attempt in a container that is the first process of the container, which its own process makes.
"""

from __future__ import annotations

from phalanx.core.model.orders import AttemptKey
from phalanx.errors import Unavailable
from phalanx.runner.accounts import Account, Accounts, NoAccount
from phalanx.runner.containers.launching import ContainerLaunches
from phalanx.runner.keeper_messages import Ticks
from phalanx.runner.session_environment import AttemptLeader
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.vps_homes import VpsHomes


class AttemptLeaders:
    """Those of one runner."""

    def __init__(
        self,
        engine: RunnerEngine,
        names: dict[AttemptKey, str],
        accounts: Accounts,
        homes: VpsHomes,
        containers: ContainerLaunches | None,
    ) -> None:
        """`names` are the keepers' keys of attempts."""
        self._engine = engine
        self._names = names
        self._accounts = accounts
        self._homes = homes
        self._containers = containers
        self._found: dict[AttemptKey, tuple[int, Ticks]] = {}

    def note(self, key: AttemptKey, pid: int, born: Ticks) -> None:
        """It runs, and this is its first process."""
        self._found[key] = pid, born

    def forget(self, key: AttemptKey) -> None:
        self._found.pop(key, None)

    def find(self, key: AttemptKey) -> tuple[AttemptLeader, str | None] | None:
        """The first process of an attempt that runs, and the folder that it began in, if that is known."""
        if key not in self._found or key not in self._names:
            return None
        held, briefing = self._engine.state.held.get(key), self._engine.state.briefing
        group = None if held is None or held.start is None else held.start.group
        account = self._account_of(key[0])
        home, uid = ("/", None) if account is None else (account.home, account.uid)
        brief = None if group is None else briefing.brief(key[0], group)
        if brief is not None and brief.vps is not None:
            home = self._homes.inner_home(brief)
        cwd = None if brief is None else brief.command.cwd or home
        first = self._found[key]
        if self._containers is not None and self._containers.has(key):
            inside = self._containers.leader(key)
            if inside is None:
                raise Unavailable("its container has not started yet", reason="CannotEnter", retry_after_s=1)
            first = inside
        return AttemptLeader(*first, self._names[key], uid), cwd

    def _account_of(self, job: str) -> Account | None:
        """The account that tasks of a job have; None for the runner's own."""
        brief = self._engine.state.briefing.any_brief(job)
        if not self._accounts.are_mapped:
            return None
        try:
            if brief is None:  # a runner that was restarted is told when it joins
                raise NoAccount("the runner has not been told yet whose task it is")
            return self._accounts.of(brief.user)
        except NoAccount as error:
            raise Unavailable(str(error), reason="CannotEnter", retry_after_s=1) from None
