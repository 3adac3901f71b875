"""What an attempt is started with: its logs, environment, processors and cgroup, as sent to the keeper.

A group's brief is sent to a keeper once. `core/runner/state.py` decides which attempts are started, and when. The
environment is made in `environment.py`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from phalanx.core.model.orders import AttemptKey, Brief, LonePorts, Start, key_text
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.core.runner.effects import Spawn
from phalanx.logger import logger
from phalanx.runner.accounts import Account, Accounts, NoAccount
from phalanx.runner.containers.launching import ContainerLaunches, OfAttempt
from phalanx.runner.containers.launching import command as container_command
from phalanx.runner.environment import (
    LOOPBACK,
    Peer,
    Standing,
    Withheld,
    attempt_environment,
    group_environment,
    inherited,
    inside,
    standing,
)
from phalanx.runner.hosts_files import HostsFiles
from phalanx.runner.keeper_keys import brief_id, read_key
from phalanx.runner.keeper_messages import BriefAccount, Launch, Row, Ticks
from phalanx.runner.keeper_versions import has_input, without_spaces
from phalanx.runner.keepers import NodeKeeper
from phalanx.runner.leaders import AttemptLeaders
from phalanx.runner.limits import AttemptLimits, LaunchLimits
from phalanx.runner.log_files import (
    ARTIFACTS,
    RESULT,
    AttemptPaths,
    LogPath,
    attempt_paths,
    folder_of,
    inner_result,
    log_path,
)
from phalanx.runner.lone_environment import LoneEnvironments, SharedEnvironment
from phalanx.runner.merging import memo_with, tasks_in, tasks_of, with_result
from phalanx.runner.overlay import TaskNetworks
from phalanx.runner.parameters import own_command
from phalanx.runner.processes import Machine, Processes
from phalanx.runner.scratch import VARIABLE as SCRATCH_VARIABLE
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.usage.sampler import UsageSampler
from phalanx.runner.vps_homes import VpsHomes

log = logger("runner")


class Launches:
    """The launches of one runner. The keeper's key of an attempt includes its lane."""

    def __init__(
        self,
        engine: RunnerEngine,
        state_dir: Path,
        base_env: dict[str, str],
        log_max_bytes: int,
        limits: AttemptLimits,
        machine: Machine,
        accounts: Accounts,
        containers: ContainerLaunches | None = None,
    ) -> None:
        self.log_root = state_dir / "logs"
        self._logs_in = str(self.log_root)
        self.names: dict[AttemptKey, str] = {}
        self._keys: dict[str, AttemptKey] = {}  # by name
        self._engine = engine
        self._checkpoints = state_dir / "checkpoints"
        self._base_env = base_env
        self._log_max_bytes = log_max_bytes
        self._limits = limits
        self._machine = machine
        self._accounts = accounts
        self._containers = containers
        self._hosts = HostsFiles(engine, machine, self._path)
        self._answers_for: dict[AttemptKey, int] = {}  # for how many tasks, if its program does that
        self._former: set[AttemptKey] = set()  # attempts whose files are where an earlier version has them
        self._ports = LonePorts(f"{engine.node}/{engine.incarnation}")
        self._lone = LoneEnvironments()
        self.usage = UsageSampler(engine, state_dir)
        self.homes = VpsHomes(state_dir / "vps")
        self.leaders = AttemptLeaders(engine, self.names, accounts, self.homes, containers)
        engine.homes, engine.remove_home = self.homes.names, self.homes.remove

    def start(self, keeper: NodeKeeper, effect: Spawn, not_after: float) -> None:
        """Have the keeper start an attempt, or prepare it.

        Raises OSError where its log can have no folder, NoAccount or Withheld where it may not run here or anywhere.
        """
        start, brief = effect.start, effect.brief
        if (connection := keeper.connection) is None:
            return
        lone = self._alone(keeper, effect)
        account, id = self._brief(keeper, connection, brief, None if lone is None else lone[0])
        name = self.names[start.key] = f"{key_text(start.key)}/{start.lane}"
        self._keys[name] = start.key
        is_inside = self._accounts.are_mapped or bool(brief.command.image)
        is_split = brief.command.split_output or not connection.joins_streams
        paths = attempt_paths(self._logs_in, start.key, is_inside, is_split)
        if brief.vps is not None:
            self.homes.prepare(start, brief, account, self._engine.vps_addresses)
        owner = None if account is None else (account.uid, account.gid)
        limits = self._limits.take(
            start.key, start.lane, start.grant, connection.version, keeper.cgroups, owner
        )
        env, spaces = self._surroundings(effect) if lone is None else (lone[1], {})
        if tasks := tasks_of(start):
            self._answers_for[start.key] = tasks
        env["PHALANX_RESULT"] = paths.result
        env["PHALANX_ARTIFACTS"] = paths.artifacts
        env |= {name: text for name, text in limits.env.items() if name not in brief.command.env}
        if not connection.makes_folders:
            self._machine.make_artifacts(self.artifacts_path(start.key))
            spaces = without_spaces(spaces)
        if brief.command.image and self._containers is not None:  # the simulator gets images ready, no more
            env = self._contain(keeper, effect, account, paths, limits, spaces, env)
            spaces = {"net": spaces["net"]} if "net" in spaces else {}
        if (networks := self._networks) is not None:
            for folder in limits.cgroups:
                networks.assign(folder, brief.user)
        launch = Launch(
            *(paths.stdout, paths.stderr),
            env=env,
            cpus=limits.cpus or None,
            cgroups=limits.cgroups or None,
            log_max_bytes=self._log_max_bytes,
            lane=start.lane,
            limit_s=brief.time_limit_s,
            held=effect.held,
            not_after=not_after,
            spaces=spaces or None,
            result=paths.result,
            artifacts=paths.artifacts,
            scratch=limits.scratch,
            memo=memo_with(limits.memo, tasks),
            processes_max=limits.processes_max,
            argv=own_command(brief, start) if not (brief.command.image and self._containers) else None,
            attached=brief.command.attached,
            input=has_input(effect),
        )
        connection.start(name, id, launch)

    def _alone(self, keeper: NodeKeeper, effect: Spawn) -> tuple[SharedEnvironment, dict[str, str]] | None:
        """The variables of an attempt that stands alone: those it shares with others, and its own; None for others."""
        start, brief, engine = effect.start, effect.brief, self._engine
        is_together = start.formation or effect.roll is not None or brief.names or start.grant.address
        if is_together or brief.command.image or brief.vps is not None:
            return None
        port, here = self._ports.take(start.key), Peer(engine.node, engine.address or LOOPBACK)
        shared, own = self._lone.of(brief, start, port, here, engine.capacity, engine.state.epoch)
        return (shared, own) if keeper.can_be_briefed(shared.brief_id) else None

    def _surroundings(self, effect: Spawn) -> tuple[dict[str, str], dict[str, str]]:
        """The variables of an attempt, and the namespaces it starts in."""
        start, brief, engine = effect.start, effect.brief, self._engine
        here = Peer(engine.node, engine.address or LOOPBACK)
        port = 0 if start.formation else self._ports.take(start.key)
        others = engine.state.briefing.roll(start.key[0], 0) if brief.names else None
        place = standing(start, brief, effect.roll, here, port, others)
        env = attempt_environment(brief, start, place, engine.capacity, engine.state.epoch)
        return env, self._spaces(start, place, env)

    def _contain(
        self, keeper: NodeKeeper, effect: Spawn, account: Account | None, paths: AttemptPaths,
        limits: LaunchLimits, spaces: dict[str, str], env: dict[str, str],
    ) -> dict[str, str]:  # fmt: skip
        """Write down what the container of an attempt has; the variables by which its process finds that.

        Those of the job are not among them: the process is root's, and its loader would do what they say.
        """
        assert self._containers is not None
        brief = effect.brief
        has = OfAttempt(
            folders=self._folders_of(paths, limits, brief.job),
            result=paths.result,
            hosts=spaces.get("hosts", ""),
            hostname=spaces.get("hostname", ""),
            has_network="net" in spaces,
            is_tracked=bool(limits.cgroups or self._limits.tracking(keeper.cgroups)),
            files=tuple(filter(None, (self._base_env.get("PHALANX_TASK_CA_FILE"),))),
            home="" if brief.vps is None else self.homes.home(brief.job),
            beside=self.homes.argv(brief.job) if effect.start.port else [],
            stdin=has_input(effect),
        )
        whole = inside(self._base_env, brief.exported)
        whole |= {} if account is None else {"USER": account.name, "LOGNAME": account.name}
        whole |= group_environment(brief, self._engine.node, f"{self._checkpoints}/{brief.job}") | env
        return self._containers.write(effect.start, brief, account, whole, has)

    def _folders_of(self, paths: AttemptPaths, limits: LaunchLimits, job: str) -> tuple[str, ...]:
        """What of its attempt a container sees and may write to, at the same paths."""
        folders = (paths.artifacts, f"{self._checkpoints}/{job}", limits.env.get(SCRATCH_VARIABLE))
        return tuple(filter(None, folders))

    def _spaces(self, start: Start, place: Standing, env: dict[str, str]) -> dict[str, str]:
        """The namespaces of an attempt; its hosts file is written, which says where its peers are."""
        spaces: dict[str, str] = {}
        if start.grant.address and self._engine.networks is not None:
            spaces = {"net": self._engine.networks.add(start.key, start.grant.address), "confined": "yes"}
        return spaces | self._hosts.write(start, place, env)

    def with_result(
        self, key: AttemptKey, end: ProcessEnd, bytes_max: int | None = None
    ) -> ProcessEnd | None:
        """The end of an attempt with what it gave as its result; None if its file is longer than that.

        Nothing is changed here, so that a thread may read long files.
        """
        tasks = self._answers_for.get(key, 0)
        for path in (self._path(key, RESULT), inner_result(self.artifacts_path(key))):
            found = self._machine.read_result(path, tasks, bytes_max)
            if found is None:
                return None
            if found.text or found.error:
                return with_result(end, found)
        return end

    def close_artifacts(self, key: AttemptKey) -> bool:
        """Whether an attempt left artifacts."""
        return self._machine.close_artifacts(self.artifacts_path(key))

    def artifacts_path(self, key: AttemptKey) -> LogPath:
        """The folder for its artifacts, made with those above it before the task starts."""
        return self._path(key, ARTIFACTS)

    def find_files(self, key: AttemptKey) -> None:
        """Look for the files of an attempt that an earlier runner had started: its version may have them elsewhere."""
        if self._machine.has_artifacts(log_path(self.log_root, *key, ARTIFACTS).former):
            self._former.add(key)

    def _path(self, key: AttemptKey, kind: str) -> LogPath:
        """Where the task makes its result, or finds the folder for its artifacts."""
        path = log_path(self.log_root, *key, kind)
        return path.former if key in self._former else path

    def started(self, key: AttemptKey, pid: int, born: Ticks, at: float) -> None:
        """It runs, and this is its first process; since `at` by a clock that does not step."""
        self.leaders.note(key, pid, born)
        self.usage.started(key, self.names.get(key, ""), pid, self._limits.own_folders(key), at)

    def account_of_user(self, user: str) -> Account | None:
        """The account of a user; None for the runner's own. Raises NoAccount."""
        return self._accounts.of(user)

    def adopt(self, keeper: NodeKeeper, key: AttemptKey, lane: int, row: Row) -> None:
        """An attempt that an earlier runner had started, or that it had not; then there is no pid."""
        self.names[key] = row.key
        self._keys[row.key] = key
        self.find_files(key)
        if tasks := tasks_in(row.memo):
            self._answers_for[key] = tasks
        self._limits.adopt(key, lane, row.memo, row.pid > 0, keeper.cgroups)
        self._hosts.adopt(key)
        if row.pid:
            self.leaders.note(key, row.pid, row.born)
            self.usage.started(key, row.key, row.pid, self._limits.own_folders(key))

    def sweep(self) -> None:
        """All attempts of an earlier runner are adopted: remove what it left of others."""
        self._limits.sweep()
        self.homes.sweep()

    def key_of(self, name: str) -> AttemptKey | None:
        """The attempt of a keeper's key; None for an invalid one."""
        key = self._keys.get(name)
        named = read_key(name) if key is None else None
        return key if named is None else named[0]

    def forget(self, keeper: Processes | None, key: AttemptKey) -> None:
        self._ports.give_back(key)
        if self._limits.has(key):  # one that was given back unstarted ends without a word of the keeper
            self.release(key)
        self._former.discard(key)
        self._answers_for.pop(key, None)
        self.leaders.forget(key)
        name = self.names.pop(key, None)
        if name is None:
            return
        self._keys.pop(name, None)
        if keeper is not None:
            keeper.forget((name,))

    def forget_brief(self, keeper: NodeKeeper, job: str, group: int) -> None:
        self._lone.forget(job, group)
        self._machine.remove_empty(f"{self._checkpoints}/{job}")
        if keeper.connection is not None:
            for id in keeper.forget_briefs(brief_id(job, group)):
                keeper.connection.forget_brief(id)

    def ended(self, key: AttemptKey, end: ProcessEnd) -> ProcessEnd:
        """Nothing of it is alive: its limits are given back; the end, with what it used."""
        self.leaders.forget(key)
        if self._containers is not None:
            self._containers.ended(key, was_killed=end.signal is not None or end.reason is not None)
        self._leave_network(key)
        return self._limits.ended(key, self.usage.ended(key, end, self._limits.own_folders(key)))

    def release(self, key: AttemptKey) -> None:
        """Nothing of it is alive, or it was never started."""
        self.leaders.forget(key)
        if self._containers is not None:
            self._containers.ended(key, was_killed=False)
        self.usage.forget(key)
        self._limits.release(key)
        self._leave_network(key)

    def _leave_network(self, key: AttemptKey) -> None:
        if self._engine.networks is not None:
            self._engine.networks.remove(key)
        self._hosts.remove(key)

    def release_all(self, keys: Collection[AttemptKey]) -> None:
        for key in keys:
            self.release(key)

    async def leave(self) -> None:
        """The runner stops, and nothing runs any more: remove all that was made for attempts."""
        await self._limits.leave()

    def _brief(
        self, keeper: NodeKeeper, connection: Processes, brief: Brief, shared: SharedEnvironment | None
    ) -> tuple[Account | None, str]:
        """Send the keeper what attempts of a group share, once; their account, and its id. The logs get a folder."""
        id = brief_id(brief.job, brief.group) if shared is None else shared.brief_id
        if id in keeper.briefed:
            return keeper.briefed[id], id
        if brief.trouble:
            raise Withheld(brief.trouble)
        account = self._accounts.of(brief.user)
        if account is not None and not connection.makes_folders:
            raise NoAccount("the keeper of this node is of an older version; stop the runner with its tasks")
        log_path(self.log_root, brief.job, 0, 0, RESULT)  # raises ValueError for what is no id of a job
        self._machine.make_folder(f"{self.log_root}/{folder_of(brief.job)}")
        checkpoints = f"{self._checkpoints}/{brief.job}"
        self._machine.make_folder(checkpoints)
        env = inherited(self._base_env, brief.exported) | ({} if account is None else account.environment)
        env |= group_environment(brief, self._engine.node, checkpoints) | (
            {} if shared is None else shared.env
        )
        argv, cwd, told = brief.command.argv, brief.command.cwd, None
        in_container = bool(brief.command.image) and self._containers is not None
        is_ours = in_container or brief.vps is not None  # it takes on the account by itself
        if in_container:
            argv, cwd, env = tuple(container_command()), None, self._base_env
        elif brief.vps is not None:
            argv, cwd = tuple(self.homes.argv(brief.job)), None
            env["HOME"] = self.homes.home(brief.job)
        if account is not None:
            prefix = () if is_ours else account.prefix(self._accounts.program)
            told = BriefAccount(account.uid, account.gid, account.groups, prefix)
            cwd = cwd if is_ours else cwd or account.home
            os.chown(checkpoints, account.uid, account.gid)
        connection.brief(id, argv, env, cwd, self._tracking(keeper, brief.user), told)
        keeper.note_brief(brief_id(brief.job, brief.group), id, account)
        return account, id

    def _tracking(self, keeper: NodeKeeper, user: str) -> str | None:
        """The folder in which attempts have cgroups; those of one user have their own in an overlay network."""
        networks, whole = self._networks, self._limits.tracking(keeper.cgroups)
        folder = whole if networks is None else self._limits.tracking(keeper.cgroups, user)
        if networks is not None and folder is not None and folder != whole:
            networks.assign(folder, user)
        return folder

    @property
    def _networks(self) -> TaskNetworks | None:
        """Those of an overlay network that there is."""
        return networks if (networks := self._engine.networks) is not None and networks.is_on else None
