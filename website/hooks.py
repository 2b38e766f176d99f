"""What pages need so that a site can be made of them: plain fences, links that leave docs/, all decisions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

# Words after a fence's language say how a test runs the example; they are not for readers.
_FENCE = re.compile(r"^(```[a-z]+) [^\n{]+$", re.MULTILINE)
# Files of the project that are not pages are named, and not linked.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!decisions)[^)#]*\.?(?:py|toml|json|md)?(?:#[^)]*)?\)")
DOCS = Path(__file__).parent.parent / "docs"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List all decisions, and pages that the configuration does not place, so that none is missing."""
    nav: list[Any] = config.nav or []
    placed = {
        page for section in nav for pages in section.values() for page in pages if isinstance(page, str)
    }
    others = [path.name for path in sorted(DOCS.glob("*.md")) if path.name not in placed]
    decisions = [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("*.md"))]
    inside = next(section["Inside"] for section in nav if "Inside" in section)
    inside += [*others, {"Decisions": decisions}]
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text of a page as the site shows it."""
    text = _FENCE.sub(r"\1", markdown)
    depth = page.file.src_uri.count("/")

    def plain(match: re.Match[str]) -> str:
        ups = match[0].count("../")
        return match[1] if ups > depth else match[0]

    return _OUTSIDE.sub(plain, text)
