"""What both models share about policies: what is stored, who is held to it, and from when on."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from redisq.errors import ConfigurationConflict
from redisq.policy import Policy

P = TypeVar("P", bound=Policy)


class Stored(Protocol):
    """What the clients of one queue share."""

    exists: bool
    policy: dict[str, str] | None


class Guard(Generic[P]):
    """The door of one client's methods. `kind` is the class of the policy that it may have declared."""

    def __init__(self, name: str, store: Stored, kind: type[P], declared: P | None) -> None:
        self._name = name
        self._store = store
        self._kind = kind
        self._declared = declared
        self._used = self._wrote = self._unproven = False

    @property
    def policy(self) -> P:
        stored = self._store.policy
        return self._kind.from_stored(self._kind.DEFAULTS if stored is None else stored)

    def read(self) -> None:
        """The first use of the queue: what this client declares must be what is stored, if anything is."""
        # choice: a queue that does not exist is not used yet
        if self._store.exists and not self._used:
            self._hold()
            self._used, self._unproven = True, self._store.policy is None

    def write(self, *, creates: bool = False) -> None:
        """The first write stores what this client declares, or proves it if nothing was stored at the first use."""
        created = creates and not self._store.exists
        self._store.exists |= creates
        self.read()
        if not self._store.exists or (self._wrote and not created):
            return
        # choice: a queue that another client deleted and a third one made anew keeps what they say
        if self._store.policy is None and self._declared is not None:
            self._store.policy = self._declared.stored
        elif self._unproven:
            self._hold()
        self._wrote = True

    def alter(self, change: P) -> P:
        """Stores the fields that `change` gives, and returns the policy as it was."""
        self.write(creates=True)
        old = self.policy
        self._store.policy = {**old.stored, **change.given}
        return old

    def forget(self) -> None:
        """The queue was deleted: the next use is a first one."""
        self._used = self._wrote = False

    def _hold(self) -> None:
        stored, declared = self._store.policy, self._declared
        if stored is None or declared is None:
            return
        different = sorted(name for name, value in declared.given.items() if stored[name] != value)
        if different:
            raise ConfigurationConflict(f"{self._name} is stored with another {', '.join(different)}")
