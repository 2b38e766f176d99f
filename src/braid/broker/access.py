"""Who may say what, hear what, and how much of it?

A *principal* is a person or program the broker knows by a token or a certificate. Its *grant* consists of
filters: it may publish what the publish filter accepts, and subscribe to what the subscribe filter covers,
or, if its grant says `narrow`, to whatever its subscription and the grant have in common.

A publication with ranges is a box of points, and subscribers receive it when one point satisfies
them. So it may be published only if the publish grant accepts *every* point: otherwise a publisher
allowed `zone = 1` could reach the subscribers of zone 9 with a range from 1 to 9. It is also what keeps
routing by advertisements complete: what stays within the grant stays within the advertisement.

Nothing here depends on other principals: an error shows the asker's own request and own grant.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from braid.errors import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    FilterError,
    RequestRefusedError,
)
from braid.language import Filter, Range
from braid.language.covering import covers
from braid.language.evaluate import evaluate
from braid.language.expressions import attribute_names
from braid.language.normal_form import Term
from braid.language.publication import plain_attributes
from braid.language.reading import common_part, is_within, read_filter
from braid.language.value_sets import NULL_ONLY, ValueSet, compared_with, floats_between, integers_between
from braid.matching import FilterIndex

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from braid.language import Value
    from braid.language.intervals import Intervals
    from braid.matching.columns import BoolArray

__all__ = [
    "ANONYMOUS",
    "AccessPolicy",
    "Grant",
    "Limits",
    "Principal",
    "RateLimiter",
    "RequestRate",
    "hashed_token",
    "is_token_hash",
]

ANONYMOUS = "anonymous"

# A token that Braid makes has some fifty characters. What is longer than this is nobody's token, and is
# not hashed: a stranger must not make the broker work.
TOKEN_LENGTH_MAX = 512
# A filter may have a million characters; an error shows so many of them.
SHOWN_LENGTH_MAX = 300
# For fewer publications than this, evaluating them one by one is quicker than making columns of them.
FEW_PUBLICATIONS = 64
# How long a silent client saves up its allowance. It bounds the burst to a second's worth.
BURST_US = 1_000_000

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_PLAIN_KINDS = frozenset({bool, int, float, str, type(None)})
_EVERYTHING = Filter("TRUE")
# How credentials are kept: hashes of tokens as they are, names in certificates behind this.
_CERTIFICATE = "certificate:"
# What stands for a token that cannot be one.
_NO_TOKEN = "sha256:"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a principal may do. `None` for a filter allows nothing, `Filter("TRUE")` everything."""

    publish: Filter | None = None
    """What may be published: every publication must satisfy it, one with ranges at every point."""
    subscribe: Filter | None = None
    """What may be asked for: it must cover every subscription."""
    operate: bool = False
    """Whether reports may be read and operations asked for. They show the whole broker."""
    link: bool = False
    """Whether a neighbouring broker may connect so. It carries everybody's publications: trust it fully."""
    replay: frozenset[str] = frozenset()
    """Logs of others, each as `OWNER/NAME`, that may be replayed, and asked where they stand. Their rows are
    those that the owner may have."""
    narrow: bool = False
    """What happens to a subscription or an advertisement beyond the grant: it is narrowed to what is
    allowed instead of being refused. Kinder, and a client may not notice that it hears less."""

    @classmethod
    def everything(cls) -> Grant:
        """Every right there is."""
        return cls(_EVERYTHING, _EVERYTHING, operate=True, link=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one principal may take of a broker."""

    connections_max: int = 1_024
    """Connections of one principal at a time. Each costs a socket and its buffers on both sides."""
    connections_per_second_max: int = 2_000
    """Connections that one principal may open in a second. Each costs a greeting, with TLS a handshake."""
    subscriptions_max: int = 1_000_000
    """Subscriptions of one principal over all its connections, durable ones included whether they are read or
    not. Each costs a row in the tables of every broker that it is forwarded to. As many advertisements may
    one connection have."""
    stored_bytes_max: int = 16 << 30
    """Bytes of publications that the durable subscriptions of one principal keep together. Beyond it the
    oldest rows of the largest go, acknowledged or not. (How rows from before a restart share their bytes is
    estimated.)"""
    stored_rows_max: int = 100_000_000
    """The same for publications."""
    publishers_max: int = 10_000
    """Names that one principal publishes under within ten minutes. Brokers remember of each name what they
    have seen, so many names crowd out others. A program has one."""
    publications_per_second_max: int = 1_000_000
    """Publications of one connection, on average; a second's worth may come at once. The default is more
    than one broker takes. Lower: nobody is crowded out, and bulk loading takes longer."""
    bytes_per_second_max: int = 256 * 1024 * 1024
    """The same for the bytes of all frames. A frame larger than this is waited for longer than a second."""
    requests_per_second_max: int = 10_000
    """Requests of one connection, on average: to subscribe, to advertise, to read a log, to take it back, and
    an operator's questions; a second's worth may come at once. More than that waits. Lower: one client keeps
    tables and neighbours less busy, and many subscriptions take longer to make."""
    requests_per_second_together_max: int = 40_000
    """The same for all connections of one principal together, who take turns."""
    frame_bytes_max: int = 4 * 1024 * 1024
    """The largest frame that is read from a connection. A whole frame is held in memory: higher allows
    larger bodies and batches, and costs that much per connection at worst."""

    filter_length_max: int = 65_536
    """Characters of one filter. Taking in a very long one holds up everybody: a second or so for ten thousand
    alternatives."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{each.name} must be a whole number of at least 1, not {value!r}")

    def require_connection(self, held: int) -> None:
        """Refuse one connection more than allowed; `held` are those that the principal has already."""
        if held >= self.connections_max:
            raise _limit(f"{held:,} connections are open, and no more than {self.connections_max:,} may be")

    def require_filter(self, text: str) -> str:
        """The text of a filter, unless it is longer than allowed."""
        if len(text) > self.filter_length_max:
            raise _limit(
                f"a filter of {len(text):,} characters; at most {self.filter_length_max:,} are allowed: "
                "divide it into several subscriptions"
            )
        return text

    def require_subscription(self, held: int, what: str = "subscriptions") -> None:
        """Refuse one subscription more than allowed; `held` are those that the principal has already.

        One connection may have as many advertisements: `what` names them.
        """
        if held >= self.subscriptions_max:
            raise _limit(
                f"there are {held:,} {what} already, and no more than {self.subscriptions_max:,} "
                "are allowed; remove some, or ask for the same with fewer filters, joined by OR"
            )


@dataclass(frozen=True)
class Principal:
    """A person or program the broker knows, what it may do, and how much of it."""

    name: str
    grant: Grant
    limits: Limits = field(default_factory=Limits)

    @property
    def publishes_anything(self) -> bool:
        """Whether everything may be published."""
        return self._publish is not None and self._publish.everything

    def permitted_rows(self, attributes: Sequence[Mapping[str, Value | None]]) -> BoolArray | None:
        """Which of these publications may be published; None when all of them may.

        A value that no publication can have raises a `PublicationError`.
        """
        if self.publishes_anything:
            return None
        permitted = (
            np.zeros(len(attributes), np.bool_)
            if self._publish is None
            else self._publish.permitted_rows(attributes)
        )
        return None if permitted.all() else permitted

    def refused_publication(self, attributes: Mapping[str, Value | None]) -> AccessDeniedError:
        """What to tell about a publication that is not permitted. Only names: values may be secret."""
        names = _shown(", ".join(sorted(attributes)) or "none")
        rule = "may publish nothing"
        if self.grant.publish is not None:
            rule = f"may publish what satisfies: {_shown(self.grant.publish.text)}"
            if any(isinstance(value, Range) for value in attributes.values()):
                rule += " (at every point of its ranges)"
        return AccessDeniedError(
            f"{self.name!r} {rule}; a publication with the attributes {names} is beyond that"
        )

    def asked_filter(self, text: str) -> Filter:
        """The filter that this principal asks with."""
        return read_filter(self.limits.require_filter(text))

    def permitted_subscription(self, filter: Filter) -> Filter:
        """The subscription itself, or narrowed to the grant, or an `AccessDeniedError`."""
        return self._permitted("subscribe", filter, self.grant.subscribe)

    def permitted_part(self, filter: Filter) -> Filter | None:
        """What of this filter may be subscribed to, whether narrowing is offered or not; None for nothing."""
        granted = self.grant.subscribe
        try:
            return None if granted is None else common_part(filter, granted)
        except FilterError:
            return None  # too large to be written down: then nothing of it

    def permitted_advertisement(self, filter: Filter) -> Filter:
        """The advertisement itself, or narrowed to the grant, or an `AccessDeniedError`."""
        return self._permitted("advertise", filter, self.grant.publish)

    def require_operate(self, what: str) -> None:
        """Refuse an operation unless the principal may operate the broker."""
        if not self.grant.operate:
            raise AccessDeniedError(f"{self.name!r} may not operate this broker, and {what!r} needs that")

    @cached_property
    def _publish(self) -> _PublishGrant | None:
        return None if self.grant.publish is None else _PublishGrant(self.grant.publish)

    def _permitted(self, verb: str, asked: Filter, granted: Filter | None) -> Filter:
        if granted is None:
            raise AccessDeniedError(f"{self.name!r} may not {verb} at all; asked for: {_shown(asked.text)}")
        if is_within(asked, granted):
            return asked
        complaint = (
            f"{self.name!r} asked to {verb}: {_shown(asked.text)}; it may only {verb} within: "
            f"{_shown(granted.text)}"
        )
        if not self.grant.narrow:
            raise AccessDeniedError(f"{complaint}; add that condition to the request")
        try:
            narrowed = common_part(asked, granted)
        except FilterError as error:
            raise AccessDeniedError(f"{complaint}; both together are too large a filter: {error}") from None
        if narrowed is None:
            raise AccessDeniedError(f"{complaint}; the two have nothing in common")
        return narrowed


class _PublishGrant:
    """A filter that publications must stay within."""

    def __init__(self, filter: Filter) -> None:
        self._filter = filter
        self._index: FilterIndex[str] = FilterIndex([("publish", filter)])
        self.everything = any(not term.box and not term.residual for term in filter.terms)

    def permitted_rows(self, attributes: Sequence[Mapping[str, Value | None]]) -> BoolArray:
        if len(attributes) < FEW_PUBLICATIONS:
            return np.fromiter(map(self._permits, attributes), np.bool_, len(attributes))
        permitted = self._index.count_batch(attributes) > 0
        for row, each in enumerate(attributes):
            # The index asks for one point that satisfies the filter, which is enough for a point only.
            if permitted[row] and not _PLAIN_KINDS.issuperset(map(type, each.values())):
                permitted[row] = self._permits(each)
        return permitted

    def _permits(self, attributes: Mapping[str, Value | None]) -> bool:
        plain, ranged = plain_attributes(attributes)
        return self._covers_all_points(plain) if ranged else self._filter.matches(plain)

    def _covers_all_points(self, attributes: Mapping[str, Value | None]) -> bool:
        """Whether every point satisfies the filter; False as well where that cannot be decided."""
        names = set(attributes) | self._filter.attributes
        box = {name: _points(attributes.get(name)) for name in sorted(names)}
        decided = [Term(term.box) for term in self._filter.terms if _residual_holds(term, attributes)]
        return covers(decided, (Term(box),))


def _residual_holds(term: Term, attributes: Mapping[str, Value | None]) -> bool:
    """Whether what a term asks beyond its box holds at every point.

    A condition that looks at a range counts as one that may fail: `length < 2 * height` is unknown at
    points where the arithmetic overflows, so even its negation would not decide it.
    """
    for condition in term.residual:
        scalars = {}
        for name in attribute_names(condition):
            value = attributes.get(name)
            if isinstance(value, Range):
                return False
            scalars[name] = value
        if evaluate(condition, scalars) is not True:
            return False
    return True


def _points(value: Value | None) -> ValueSet:
    """The values that an attribute of a publication stands for."""
    if value is None:
        return NULL_ONLY
    if isinstance(value, Range):
        return ValueSet(integers=_between(*integers_between(value)), floats=_between(*floats_between(value)))
    equal = compared_with("=", value)
    if isinstance(value, (bool, str)):
        return equal
    # A comparison with 1 also accepts the double 1.0, which this publication is not.
    return ValueSet(floats=equal.floats) if isinstance(value, float) else ValueSet(integers=equal.integers)


def _between(low: int, high: int) -> Intervals:
    return ((low, high),) if low < high else ()


@dataclass(frozen=True)
class AccessPolicy:
    """Whom a broker knows, and by what.

    A token that is shown decides; without one, the name in the certificate does; without that, the client is
    anonymous, if there is such a principal. Where the policy knows tokens (or certificates), one that it does
    not know is refused even if anonymous clients are welcome: a client that shows one expects to be known by
    it. Kinds of credentials that it does not know at all are not looked at.
    """

    principals: Mapping[str, Principal] = field(default_factory=dict)
    tokens: Mapping[str, str] = field(default_factory=dict)
    """From `hashed_token(token)` to a principal's name. The tokens themselves are stored nowhere."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """From the name in a certificate to a principal's name. Only names from certificates that TLS has
    verified may be asked about."""
    anonymous: Principal | None = None
    expiries: Mapping[str, int] = field(default_factory=dict)
    """From `hashed_token(token)` to the moment from which on it is not accepted, in microseconds since 1970;
    a token that is not here never expires."""

    def __post_init__(self) -> None:
        for what in ("principals", "tokens", "certificates", "expiries"):
            object.__setattr__(self, what, MappingProxyType(dict(getattr(self, what))))
        for name, principal in self.principals.items():
            if principal.name != name:
                raise ConfigurationError(
                    f"the principal under the name {name!r} is called {principal.name!r}"
                )
        if not all(map(is_token_hash, self.tokens)):
            # It is not repeated: it may be a token itself.
            raise ConfigurationError("tokens are stored as `hashed_token` gives them, and one of them is not")
        for what, names in (("token", self.tokens.values()), ("certificate", self.certificates.values())):
            for name in names:
                if name not in self.principals:
                    raise ConfigurationError(f"a {what} belongs to {name!r}, and there is no such principal")

    @classmethod
    @cache
    def open(cls) -> AccessPolicy:
        """No security: every client that can connect may do everything. For loopback and closed networks."""
        return cls(anonymous=Principal(ANONYMOUS, Grant.everything()))

    @property
    def is_open(self) -> bool:
        """Whether nobody has to say who they are: there are only anonymous clients."""
        return not self.principals and self.anonymous is not None

    def named(self, name: str) -> Principal | None:
        """The principal of this name, if there is one (any more)."""
        if self.anonymous is not None and name == self.anonymous.name:
            return self.anonymous
        return self.principals.get(name)

    def authenticate(
        self, token: str | None, certificate: str | None, role: str = "client", now_us: int = 0
    ) -> Principal:
        """Who this is, or an `AuthenticationError`, or an `AccessDeniedError` if it may not have that role.

        Args:
            token: what the client sent, None without one.
            certificate: the verified name in its certificate, None without one.
            role: `client`, or `broker` for a neighbour.
            now_us: microseconds since 1970.
        """
        credential = self.credential(token, certificate)
        if not credential and self.anonymous is None and token is None and certificate is None:
            raise AuthenticationError("this broker wants a token or a client certificate, and got neither")
        return self.readmit(credential, role, now_us)

    def credential(self, token: str | None, certificate: str | None) -> str:
        """What of this the policy looks at, in a form that can be kept; empty if nothing."""
        if token is not None and self.tokens:
            return hashed_token(token) if len(token) <= TOKEN_LENGTH_MAX else _NO_TOKEN
        if certificate is not None and self.certificates:
            return f"{_CERTIFICATE}{certificate}"
        return ""

    def readmit(self, credential: str, role: str, now_us: int) -> Principal:
        """Who shows this `credential` at present; raises as `authenticate` does."""
        principal = self._known(credential, now_us)
        if role == "client" or (role == "broker" and principal.grant.link):
            return principal
        if role == "broker":
            raise AccessDeniedError(
                f"{principal.name!r} may not connect as a broker; its grant needs link = true for that"
            )
        raise AuthenticationError(f"the role is 'client' or 'broker', not {_shown(role)!r}")

    def _known(self, credential: str, now_us: int) -> Principal:
        if not credential and self.anonymous is not None:
            return self.anonymous
        if credential.startswith(_CERTIFICATE):
            name = self.certificates.get(credential.removeprefix(_CERTIFICATE))
        else:
            name = self._owner(credential)
        if name is None:
            raise AuthenticationError("this broker does not accept this token or certificate")
        if credential in self.expiries and now_us >= self.expiries[credential]:
            raise AuthenticationError("this token has expired")
        return self.principals[name]

    def _owner(self, shown: str) -> str | None:
        """Whose token it is that has this hash."""
        owner: str | None = None
        # All of them, each in constant time: how long it takes says nothing about any of them.
        for hashed, name in self.tokens.items():
            if hmac.compare_digest(hashed.encode(), shown.encode()):
                owner = name
        return owner


def hashed_token(token: str) -> str:
    """How a token is stored.

    SHA-256 once, without salt: a token has 256 random bits, so there is no dictionary to try and nothing
    that a slow hash would make slower, while every connection would pay for it. Do not hash passwords so.
    """
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def is_token_hash(text: str) -> bool:
    """Whether this can have come from `hashed_token`."""
    return _HASH.fullmatch(text) is not None


class RateLimiter:
    """How long should a connection's next read wait, so that its client keeps to its limits?

    Two buckets, one for publications and one for bytes, that hold a second's allowance each. What has
    been read has been read: it may overdraw them, and reading rests until the debt is paid. So nothing is
    refused or lost; TCP hands the waiting on to the client. Integers only, so it is exact.
    """

    __slots__ = ("_bytes", "_now_us", "_own_requests", "_publications", "_requests_together")

    def __init__(self, limits: Limits, requests_together: RequestRate | None = None) -> None:
        """`requests_together` counts the requests of all connections of one principal."""
        self._own_requests = RequestRate(limits.requests_per_second_max)
        self._requests_together = (
            requests_together
            if requests_together is not None
            else RequestRate(limits.requests_per_second_together_max)
        )
        self._publications = _Bucket(limits.publications_per_second_max)
        self._bytes = _Bucket(limits.bytes_per_second_max)
        self._now_us: int | None = None

    def take(self, publications: int, bytes: int, now_us: int) -> int:
        """Account for what was read; the microseconds to wait before reading on, 0 to go on at once."""
        if publications < 0 or bytes < 0:
            raise ValueError(f"cannot take {publications} publications and {bytes} bytes: less than nothing")
        before_us = self._now_us
        elapsed_us = 0
        if before_us is None or now_us > before_us:
            elapsed_us = 0 if before_us is None else now_us - before_us
            self._now_us = now_us
        wait_us = self._publications.take(publications, elapsed_us)
        bytes_wait_us = self._bytes.take(bytes, elapsed_us)
        return wait_us if wait_us > bytes_wait_us else bytes_wait_us

    def owed_us(self, now_us: int) -> int:
        """How long reading should still rest."""
        return self.take(0, 0, now_us)

    def ask(self, requests: int, now_us: int) -> None:
        """Account for requests that are handled now."""
        self._own_requests.take(requests, now_us)
        self._requests_together.take(requests, now_us)

    def requests_owed_us(self, now_us: int) -> int:
        """How long the next request should wait."""
        return max(self._own_requests.owed_us(now_us), self._requests_together.owed_us(now_us))


class RequestRate:
    """How long should the next request wait?"""

    __slots__ = ("_bucket", "_now_us")

    def __init__(self, per_second: int) -> None:
        self._bucket = _Bucket(per_second)
        self._now_us: int | None = None

    def take(self, requests: int, now_us: int) -> int:
        """Account for requests; the microseconds until the next one."""
        elapsed_us = 0 if self._now_us is None else max(0, now_us - self._now_us)
        self._now_us = now_us if self._now_us is None else max(self._now_us, now_us)
        return self._bucket.take(requests, elapsed_us)

    def owed_us(self, now_us: int) -> int:
        """The microseconds until the next request."""
        return self.take(0, now_us)


class _Bucket:
    """An allowance that grows with time; its level is counted in millionths, below zero it is a debt."""

    __slots__ = ("_level", "_per_second")

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._level = per_second * BURST_US

    def take(self, amount: int, elapsed_us: int) -> int:
        per_second = self._per_second
        level = self._level + per_second * elapsed_us
        full = per_second * BURST_US
        self._level = level = (level if level < full else full) - amount * 1_000_000
        return 0 if level >= 0 else -(level // per_second)


def _limit(message: str) -> RequestRefusedError:
    return RequestRefusedError(message, "limit")


def _shown(text: str) -> str:
    return (
        text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}... ({len(text):,} characters)"
    )
