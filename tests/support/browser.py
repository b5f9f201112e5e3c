"""A headless Chromium for pages, where there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def executable() -> str | None:
    """Path of a browser: the variable CHROMIUM, else one on the path."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = executable()
    if path is None:
        pytest.skip("needs Chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, html: str, folder: Path, **options: Any) -> Iterator[Page]:
    """A page in the browser, from a file; an error or a warning in its console fails the test."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    said: list[str] = []
    page = browser.new_page(**{"viewport": {"width": 1400, "height": 900}, **options})
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: request.url.startswith("file:") or said.append(f"asked for {request.url}"))
    page.goto(file.as_uri())
    yield page
    page.close()
    if said:
        pytest.fail("; ".join(said))
