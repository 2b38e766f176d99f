"""How do several subscribers share one publication without getting in each other's way?

All subscribers of a bus receive the same object. Its attributes are a dictionary that refuses to
change, so that one subscriber's edit never shows up at its neighbour's; `dict(attributes)` makes a
copy to work on.
"""

from __future__ import annotations

from typing import Any, NoReturn

from braid.language import Value

__all__ = ["ReadOnlyAttributes"]


class ReadOnlyAttributes(dict[str, Value]):
    """A dictionary of attributes that cannot be changed.

    It stays a real dictionary, unlike `types.MappingProxyType`, so `json.dumps` and `pickle` take it.
    """

    __slots__ = ()

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError(
            "the attributes of a received publication are shared; change a copy: dict(attributes)"
        )

    __setitem__ = _refuse
    __delitem__ = _refuse
    __ior__ = _refuse
    clear = _refuse
    pop = _refuse
    popitem = _refuse
    setdefault = _refuse
    update = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        # The default would rebuild the dictionary item by item, which is refused.
        return (type(self), (dict(self),))
