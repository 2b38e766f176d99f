"""Can the bus work with what it was given, and if not, what should the caller do?

Every check happens before anything else does, so a call that is refused has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import iscoroutinefunction
from numbers import Real
from threading import TIMEOUT_MAX
from typing import Any, Final, TypeVar

from braid.embedded.core import Draft
from braid.embedded.mailbox import WhenFull
from braid.errors import ConfigurationError, PublicationError
from braid.language import Filter, Publication, checked_attributes

__all__ = [
    "QUEUE_SIZE",
    "checked_choice",
    "checked_draft",
    "checked_drafts",
    "checked_filter",
    "checked_handler",
    "checked_timeout",
    "is_coroutine_callback",
    "require_size",
    "require_text",
]

Handler = TypeVar("Handler")

QUEUE_SIZE: Final = 1000
"""Publications a subscription's queue holds unless told otherwise: enough to ride out a hiccup."""


def checked_filter(condition: Filter | str) -> Filter:
    """A filter, made from its text if need be."""
    if isinstance(condition, Filter):
        return condition
    if not isinstance(condition, str):
        raise ConfigurationError(f"subscribing needs a filter or its text, not {type(condition).__name__}")
    return Filter(condition)


def is_coroutine_callback(callback: object) -> bool:
    """True for coroutine functions, partials of them, and objects whose `__call__` is one."""
    if callback is not None and not callable(callback):
        raise ConfigurationError(f"a callback must be callable, not {type(callback).__name__}")
    return iscoroutinefunction(callback) or iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004


def checked_handler(handler: Handler, what: str = "on_error") -> Handler:
    """A handler that can be called wherever something happens, or a `ConfigurationError`."""
    if handler is not None and not callable(handler):
        raise ConfigurationError(f"{what} must be callable, not {type(handler).__name__}")
    if is_coroutine_callback(handler):
        raise ConfigurationError(f"{what} must be a plain function: a coroutine function is never awaited")
    return handler


def checked_drafts(batch: Iterable[Mapping[str, Any] | Publication]) -> list[Draft]:
    """A batch whose every publication can be published, or a `PublicationError` that says which cannot."""
    if isinstance(batch, (Mapping, str, bytes)) or not isinstance(batch, Iterable):
        raise PublicationError(
            f"a batch is an iterable of publications, not a single {type(batch).__name__}; "
            "publish() takes one publication"
        )
    drafts: list[Draft] = []
    for row, item in enumerate(batch):
        try:
            drafts.append(checked_draft(item))
        except PublicationError as error:
            raise PublicationError(f"publication {row} of the batch: {error}") from None
    return drafts


def checked_draft(
    attributes: Mapping[str, Any] | Publication, body: bytes = b"", content_type: str = ""
) -> Draft:
    """The parts of a publication, or a `PublicationError` that says what is wrong with them."""
    if isinstance(attributes, Publication):
        if body != b"" or content_type != "":
            raise PublicationError("a Publication brings its own body and content type; give them only once")
        body, content_type, attributes = attributes.body, attributes.content_type, attributes.attributes
    if type(body) is not bytes:
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise PublicationError(f"a body is bytes, not {type(body).__name__}; encode it first")
        body = bytes(body)
    if not isinstance(content_type, str):
        raise PublicationError(f"a content type is a string, not {type(content_type).__name__}")
    return Draft(checked_attributes(attributes), body, content_type)


def checked_choice(when_full: WhenFull | str) -> WhenFull:
    """One of the three choices, or a `ConfigurationError` that lists them."""
    try:
        return WhenFull(when_full)
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in WhenFull)
        raise ConfigurationError(f"when_full is one of {choices}, not {when_full!r}") from None


def checked_timeout(timeout_s: float | None) -> float | None:
    """Seconds that can be waited, or a `ConfigurationError`."""
    if timeout_s is None:
        return None
    if not isinstance(timeout_s, Real) or isinstance(timeout_s, bool):
        raise ConfigurationError(f"a timeout is a number of seconds or None, not {timeout_s!r}")
    if not timeout_s >= 0:  # also refuses what is not a number although its type is
        raise ConfigurationError(f"a timeout is at least 0 seconds, not {timeout_s!r}")
    return float(min(timeout_s, TIMEOUT_MAX))


def require_size(what: str, size: object) -> None:
    """Raise unless it is a whole number of at least 1."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ConfigurationError(f"{what} must be a whole number of at least 1, not {size!r}")


def require_text(what: str, text: object) -> None:
    """Raise unless it is a string with something in it."""
    if not isinstance(text, str) or not text:
        raise ConfigurationError(f"{what} must be a non-empty string, not {text!r}")
