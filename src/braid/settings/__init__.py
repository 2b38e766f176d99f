"""The one reader of settings: of configuration files, access files, scenarios and options.

- `document`: a TOML file or a mapping, read key by key; a mistake is named with file, line and key.
- `groups`: settings that are dataclasses, read by the types of their fields.
- `lines`: in which line of a TOML file a key stands.
"""

from __future__ import annotations

from braid.settings.document import Document, Section, parse_duration
from braid.settings.groups import meanings_of, read_fields

__all__ = ["Document", "Section", "meanings_of", "parse_duration", "read_fields"]
