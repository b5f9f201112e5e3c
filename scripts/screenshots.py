"""Pictures of docs/images/: the page of a prediction, wide, dark and narrow, and the terminal's text as SVG.

python scripts/screenshots.py                   every picture
python scripts/screenshots.py report_narrow     one of them

Needs Chromium, on the path or named by the variable CHROMIUM, and playwright (extra `test`).
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from playwright.sync_api import sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from costmodel.cli import main as costmodel
from costmodel.cli.cases import Case, Predicted, Settings, predict_case
from costmodel.report import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
TERMINAL, TERMINAL_MODEL, TERMINAL_WIDTH = "terminal", "densenet121", 110
FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of a page.

    Attributes:
        name: name of the file, without ending.
        model: model whose page it is.
        width, height: pixels of the window.
        scheme: `light` or `dark`.
        at: selector of the part that the picture begins with; empty for the top of the page.
    """

    name: str
    model: str
    width: int
    height: int
    scheme: str = "light"
    at: str = ""


SHOTS = (
    Shot("report", "densenet121", 1400, 980),
    Shot("report_charts_dark", "scripts/user_models/detection.py:yolo_like", 1400, 1180, "dark", "#c0-timeline"),
    Shot("report_narrow", "resnet18", 400, 1250),
)


def main() -> None:
    """Make every picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", dest="folder", type=Path, default=Path("docs/images"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="pictures to make; default: all")
    arguments = parser.parse_args()
    folder, wanted = arguments.folder, arguments.names or [*(shot.name for shot in SHOTS), TERMINAL]
    folder.mkdir(parents=True, exist_ok=True)
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        sys.exit("screenshots.py: no Chromium is found; install one, or name it by CHROMIUM=PATH")
    with tempfile.TemporaryDirectory() as pages, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--hide-scrollbars"])
        for shot in (shot for shot in SHOTS if shot.name in wanted):
            picture = taken(browser, shot, page_of(shot.model, Path(pages)))
            (folder / f"{shot.name}.png").write_bytes(picture)
            print(f"{shot.name}.png: {len(picture) / 1e3:.0f} kB")
        browser.close()
    if TERMINAL in wanted:
        (folder / f"{TERMINAL}.svg").write_text(terminal_svg(), encoding="utf-8")


def page_of(model: str, folder: Path) -> Path:
    """The page of a model, as a user makes it."""
    target = folder / f"{re.sub(r'[^a-z0-9]', '_', model)}.html"
    if not target.exists() and costmodel(["predict", model, "--hardware", "nvidia-h200", "-q", "-o", str(target)]):
        sys.exit(f"screenshots.py: {model} is not predicted")
    return target


def taken(browser: Browser, shot: Shot, page_file: Path) -> bytes:
    """A picture as PNG with a palette."""
    size = {"width": shot.width, "height": shot.height}
    page = browser.new_page(viewport=size, color_scheme=shot.scheme)
    page.goto(page_file.as_uri())
    page.wait_for_selector("html.ready")
    if shot.at:
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")  # every chart is drawn
        page.wait_for_selector(f"{shot.at} svg")
        page.evaluate("(part) => document.querySelector(part).scrollIntoView({ behavior: 'instant' })", shot.at)
        page.wait_for_timeout(500)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    out = io.BytesIO()
    image.quantize(256, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def terminal_svg() -> str:
    """The terminal's text of a prediction, with its colours; no font is fetched."""
    settings = Settings(
        hardware=("nvidia-h200",),
        img_size=None,
        precision=None,
        channels_last=False,
        explain=False,
        host=None,
        shapes=(),
        frontend="run",
        check=True,
        quiet=True,
        debug=False,
    )
    found = predict_case(Case(0, TERMINAL_MODEL, None), settings)[0]
    if not isinstance(found, Predicted):
        sys.exit(f"screenshots.py: {found.message}")
    text = render(found.report, width=TERMINAL_WIDTH, color=True, unicode=True, top=16)
    console = Console(
        width=TERMINAL_WIDTH, record=True, file=io.StringIO(), color_system="truecolor", force_terminal=True
    )
    console.print(Text.from_ansi(text))
    own = re.sub(r"@font-face \{\{.*?\}\}\s*|<!--.*?-->\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    own = own.replace("Fira Code, monospace", FONT)
    return console.export_svg(title=f"costmodel predict {TERMINAL_MODEL}", code_format=own)


if __name__ == "__main__":
    main()
