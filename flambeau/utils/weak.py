"""Dictionaries that hold their keys weakly and compare them by identity, as tensors must be (torch.utils.weak)."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, MutableMapping
from typing import Any


class WeakIdRef(weakref.ref):
    """A weak reference that is hashed and compared as the object's identity."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine, theirs = self(), other() if isinstance(other, weakref.ref) else None
        return self is other if mine is None or theirs is None else mine is theirs


class WeakIdKeyDictionary(MutableMapping):
    """A mapping of objects, by identity; an entry goes when its key does."""

    def __init__(self, dict: Any = None, ref_type: type = WeakIdRef) -> None:
        self.ref_type = ref_type
        self.data: Any = {}
        me = weakref.ref(self)

        def gone(key: Any) -> None:
            home = me()
            if home is not None:
                home.data.pop(key, None)

        self._gone = gone
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._gone)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # such a thing can't be referred to weakly
            return False

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key in (ref() for ref in list(self.data)) if key is not None])

    def __len__(self) -> int:
        return sum(ref() is not None for ref in list(self.data))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"


WeakTensorKeyDictionary = WeakIdKeyDictionary
TensorWeakRef = WeakIdRef
__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]
