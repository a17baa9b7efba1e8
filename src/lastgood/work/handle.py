"""The task handle as sessions and pipelines see it: the few methods that they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.catalog.values import Actor, FulfilledRequest, StoredCheckpoint
    from lastgood.engine.branch import Restored, What
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.options import Options
    from lastgood.engine.step import OnError, Step
    from lastgood.model.request import Request
    from lastgood.observe.meter import Meter


class OpenStore(Protocol):
    """The open store that a task lies in."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def meter(self) -> Meter: ...

    @property
    def options(self) -> Options: ...

    def actor(self) -> Actor:
        """Return the user who acts, for the event log."""

    def alert(self, message: str, task_id: str | None = None, error: Exception | None = None, *, code: str) -> None: ...

    def get_checkpoint(self, checkpoint_id: str, *, owner: str) -> Checkpoint: ...

    def list_checkpoints(self, task_id: str, limit: int, checkpoint_type: str, *, owner: str) -> list[Checkpoint]: ...

    def wrap_intact(self, stored: StoredCheckpoint) -> Checkpoint: ...

    def abandon_step(self, step_id: str, reason: str, *, owner: str) -> None: ...


class TaskHandle(Protocol):
    """A task, as one caller last saw or wrote it; see `lastgood.Task`."""

    @property
    def store(self) -> OpenStore: ...

    @property
    def id(self) -> str: ...

    @property
    def task_id(self) -> str: ...

    @property
    def branch_id(self) -> str | None: ...

    @property
    def owner(self) -> str: ...

    @property
    def user(self) -> str: ...

    @property
    def head(self) -> Checkpoint | None: ...

    @property
    def state(self) -> Any: ...

    def refresh(self) -> Checkpoint | None: ...

    def find(self, name: str) -> Checkpoint: ...

    @property
    def save(self) -> Callable[..., Checkpoint]: ...

    def advance(
        self,
        state: Any = ...,
        *,
        capture: bool = True,
        only_if_changed: bool = False,
        only_on: Checkpoint | None = None,
        **fields: Any,
    ) -> Checkpoint: ...

    def restore(self, checkpoint: str, what: What, *, verify: bool, message: str) -> Restored: ...

    @property
    def rewind(self) -> Callable[..., Restored]: ...

    def bring_files(self) -> None: ...

    def step(self, name: str, *, on_error: OnError) -> Step: ...

    def take_lease(self, take: Callable[[], int]) -> None: ...

    def drop_lease(self, token: int, release: Callable[[], None]) -> None: ...

    def requests(self) -> list[Request]: ...

    def end_request(self, ended: FulfilledRequest, status: Literal["met", "refused"]) -> None: ...

    def without_secrets(self, text: str) -> str: ...

    def alert(self, message: str, error: Exception | None, code: str) -> None: ...
