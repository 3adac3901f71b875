"""Attempts whose images are got ready: between the state machine, which waits for them, and what gets them ready."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from phalanx.clock import Clock
from phalanx.core.model.containers import is_ours
from phalanx.core.model.orders import AttemptKey
from phalanx.core.runner.effects import Prepare, RunnerEffect
from phalanx.runner.accounts import NoAccount
from phalanx.runner.containers.preparing import ImageFailed, ImagePreparer
from phalanx.runner.launches import Launches
from phalanx.runner.turn import RunnerEngine

Do = Callable[[list[RunnerEffect], float], None]
NOT_BY_NAME = "images of VPSs and of archives cannot be named: give the archive, or restore the VPS"
NO_RUNTIME = "its node has no runtime for containers"


class AttemptImages:
    """The images of one runner's attempts."""

    def __init__(
        self,
        engine: RunnerEngine,
        launches: Launches,
        images: ImagePreparer | None,
        clock: Clock,
        do: Do,
        settled: Callable[[], None],
    ) -> None:
        self._state = engine.state
        self._launches = launches
        self._images = images
        self._clock = clock
        self._do = do
        self._settled = settled
        self._told: list[tuple[AttemptKey, str]] = []
        engine.preparing = self._tell

    @property
    def has_news(self) -> bool:
        """Whether more is to be said of them than the last heartbeat did."""
        return self._images is not None and self._images.told() != self._told

    def prepare(self, effect: Prepare) -> None:
        """Get the image of an attempt ready."""
        key = effect.start.key
        if self._images is None:
            self._done(key, ImageFailed("exhausted", NO_RUNTIME))
            return
        try:
            account = self._launches.account_of_user(effect.brief.user)
        except NoAccount as error:
            self._done(key, ImageFailed("no_account", str(error)))
            return
        if is_ours(effect.brief.command.image):  # those of other users are among them
            self._done(key, ImageFailed("bad_image", NOT_BY_NAME))
            return
        effect = structs.replace(effect, brief=self._launches.homes.with_image(effect.brief))
        self._images.begin(effect, account, self._done)

    def abandon(self, key: AttemptKey) -> None:
        if self._images is not None:
            self._images.abandon(key)

    def _done(self, key: AttemptKey, failed: ImageFailed | None) -> None:
        now = self._clock.now()
        if failed is None:
            self._do(self._state.prepared(key, now), now)
        else:
            self._do(self._state.process_refused(key, failed.code, str(failed), now), now)
        self._settled()

    def _tell(self) -> list[tuple[AttemptKey, str]]:
        self._told = [] if self._images is None else self._images.told()
        return self._told
