"""What may be asked of the format `braid`, and is it asked for rightly?

Options are text, and Spark does not care about their case. A name that is not known is refused: a misspelt
limit would be no limit.
"""

from __future__ import annotations

import difflib
import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from braid.errors import FilterError
from braid.language import Filter
from braid.pipeline.source.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EARLIEST", "LATEST", "Credentials", "SinkOptions", "SourceOptions"]

logger = logging.getLogger(__name__)

EARLIEST = "earliest"
LATEST = "latest"

_CREDENTIALS = (
    "token",
    "tokenFile",
    "tokenEnv",
    "caFile",
    "certificateFile",
    "keyFile",
    "secret",
    "secretFile",
    "secretEnv",
)
_SOURCE = (
    "brokers",
    "log",
    "filter",
    "shards",
    "consumer",
    "whenFull",
    "startingOffset",
    "endingOffset",
    "maxRowsPerTrigger",
    "rowsPerPartition",
    "maxPartitions",
    "failOnDataLoss",
    "pushDown",
    "pushColumns",
    "sampleRows",
    "connectTimeout",
    "pinDays",
    "executorTokenFile",
    "executorTokenEnv",
    *_CREDENTIALS,
)
_SINK = (
    "brokers",
    "name",
    "runId",
    "batchId",
    "idColumn",
    "bodyColumn",
    "contentTypeColumn",
    "connectTimeout",
    # Spark passes these on to a streaming sink.
    "checkpointLocation",
    "path",
    *_CREDENTIALS,
)


class _Asked:
    """Options by name, whatever their case."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}
        by_lower = {name.lower(): name for name in known}
        for name in self._values:
            if name not in by_lower:
                close = difflib.get_close_matches(name, by_lower, 1)
                hint = f"did you mean {by_lower[close[0]]!r}? " if close else ""
                raise SourceError(
                    f"the format 'braid' has no option {name!r}; {hint}there are {', '.join(sorted(known))}"
                )

    def text(self, name: str, otherwise: str = "") -> str:
        return self._values.get(name.lower(), otherwise).strip()

    def required(self, name: str, what: str) -> str:
        found = self.text(name)
        if not found:
            raise SourceError(f"the option {name!r} is missing: {what}")
        return found

    def number(self, name: str, otherwise: int, least: int = 1) -> int:
        text = self.text(name)
        if not text:
            return otherwise
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise SourceError(f"the option {name!r} is a whole number of at least {least}, not {text!r}")
        return value

    def seconds(self, name: str, otherwise: float) -> float:
        text = self.text(name)
        if not text:
            return otherwise
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise SourceError(f"the option {name!r} is a number above 0, not {text!r}")
        return value

    def flag(self, name: str, otherwise: bool) -> bool:
        text = self.text(name).lower()
        if text in ("true", "false", ""):
            return {"true": True, "false": False, "": otherwise}[text]
        raise SourceError(f"the option {name!r} is 'true' or 'false', not {text!r}")

    def filter(self, name: str) -> str:
        text = self.text(name)
        if not text:
            return ""
        try:
            return Filter(text).text
        except FilterError as error:
            raise SourceError(f"the option {name!r} is not a filter: {error}") from None


@dataclass(frozen=True)
class Credentials:
    """How clients show who they are; files and variables are read where the client runs."""

    token: str = ""
    token_file: str = ""
    token_env: str = ""
    authority_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    secret: str = ""
    secret_file: str = ""
    secret_env: str = ""

    @classmethod
    def of(cls, asked: _Asked) -> Credentials:
        """What the options say, or a `SourceError`."""
        for kind in ("token", "secret"):
            given = [name for name in (kind, f"{kind}File", f"{kind}Env") if asked.text(name)]
            if len(given) > 1:
                raise SourceError(f"give one of the options {' and '.join(map(repr, given))}, not both")
        if asked.text("token"):
            logger.warning(
                "the option 'token' shows the token in plans and logs; use 'tokenFile' or 'tokenEnv'"
            )
        if asked.text("keyFile") and not asked.text("certificateFile"):
            raise SourceError("the option 'keyFile' needs 'certificateFile'")
        return cls(*(asked.text(name) for name in _CREDENTIALS))


@dataclass(frozen=True)
class SourceOptions:
    """What a query reads, and how."""

    brokers: tuple[str, ...]
    log: str
    filter: str
    """Of a stream: what its log is made for. Of a batch: what else its rows have to satisfy."""
    shards: int
    consumer: str
    when_full: str
    starting: str | dict[str, int]
    """`earliest`, `latest`, or offsets by the names of logs."""
    ending: str | dict[str, int]
    max_rows_per_trigger: int
    """0: no limit."""
    rows_per_partition: int
    max_partitions: int
    fail_on_data_loss: bool
    push_down: bool
    push_columns: bool
    """Whether the broker leaves other attributes out also where no predicate was pushed."""
    sample_rows: int
    connect_timeout_s: float
    pin_s: float
    credentials: Credentials
    task_credentials: Credentials | None
    """What tasks show, where that is not what the driver shows: a right to replay these logs is enough."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """What the options say, or a `SourceError` that names the one that is wrong."""
        asked = _Asked(options, _SOURCE)
        brokers = _brokers(asked)
        shards = asked.number("shards", 1)
        if shards == 1 and len(brokers) > 1:
            raise SourceError(
                f"a log lives at one broker, and 'brokers' names {len(brokers)}; give shards={len(brokers)} "
                "to divide it among them"
            )
        log = asked.required("log", "the name of the durable subscription to read, or to make for a stream")
        when_full = asked.text("whenFull", "block")
        if when_full not in ("block", "drop_oldest"):
            raise SourceError(f"the option 'whenFull' is 'block' or 'drop_oldest', not {when_full!r}")
        return cls(
            brokers=brokers,
            log=log,
            filter=asked.filter("filter"),
            shards=shards,
            consumer=asked.text("consumer", "spark"),
            when_full=when_full,
            starting=_offset(asked, "startingOffset", EARLIEST, log, shards),
            ending=_offset(asked, "endingOffset", LATEST, log, shards),
            max_rows_per_trigger=asked.number("maxRowsPerTrigger", 0, 0),
            rows_per_partition=asked.number("rowsPerPartition", 100_000),
            max_partitions=asked.number("maxPartitions", 1_000),
            fail_on_data_loss=asked.flag("failOnDataLoss", True),
            push_down=asked.flag("pushDown", True),
            push_columns=asked.flag("pushColumns", False),
            sample_rows=asked.number("sampleRows", 1_000),
            connect_timeout_s=asked.seconds("connectTimeout", 30.0),
            pin_s=asked.seconds("pinDays", 7.0) * 86_400,
            credentials=Credentials.of(asked),
            task_credentials=_task_credentials(asked),
        )

    def places(self) -> list[tuple[str, str]]:
        """Where the logs are: (broker, name) of each."""
        if self.shards == 1:
            return [(self.brokers[0], self.log)]
        return [
            (self.brokers[number % len(self.brokers)], f"{self.log}.{number}")
            for number in range(self.shards)
        ]


@dataclass(frozen=True)
class SinkOptions:
    """Where rows go, and as whose publications."""

    brokers: str
    name: str
    run_id: str
    batch_id: int
    """Which of several writes with one `runId` it is; numbers rise from write to write."""
    id_column: str
    body_column: str
    content_type_column: str
    connect_timeout_s: float
    credentials: Credentials

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """What the options say, or a `SourceError` that names the one that is wrong."""
        asked = _Asked(options, _SINK)
        return cls(
            brokers=",".join(_brokers(asked)),
            name=asked.text("name", "spark"),
            run_id=asked.text("runId"),
            batch_id=asked.number("batchId", 0, 0),
            id_column=asked.text("idColumn"),
            body_column=asked.text("bodyColumn"),
            content_type_column=asked.text("contentTypeColumn"),
            connect_timeout_s=asked.seconds("connectTimeout", 30.0),
            credentials=Credentials.of(asked),
        )


def _task_credentials(asked: _Asked) -> Credentials | None:
    file, variable = asked.text("executorTokenFile"), asked.text("executorTokenEnv")
    if not file and not variable:
        return None
    if file and variable:
        raise SourceError("give one of the options 'executorTokenFile' and 'executorTokenEnv', not both")
    own = Credentials.of(asked)
    return replace(own, token="", token_file=file, token_env=variable)


def _brokers(asked: _Asked) -> tuple[str, ...]:
    text = asked.required("brokers", "where to connect to, such as braid://127.0.0.1:7000")
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _offset(asked: _Asked, name: str, otherwise: str, log: str, shards: int) -> str | dict[str, int]:
    text = asked.text(name, otherwise)
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    wanted = f"'earliest', 'latest', an offset, or JSON like {{\"{log}\": 17}}"
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = None
    if type(value) is int and value >= 0 and shards == 1:
        return {log: value}
    names = {log} if shards == 1 else {f"{log}.{number}" for number in range(shards)}
    if not isinstance(value, dict) or not all(type(each) is int and each >= 0 for each in value.values()):
        raise SourceError(f"the option {name!r} is {wanted}, not {text!r}")
    if set(value) != names:
        raise SourceError(
            f"the option {name!r} names the logs {', '.join(sorted(value))}, and this query reads "
            f"{', '.join(sorted(names))}"
        )
    return value
