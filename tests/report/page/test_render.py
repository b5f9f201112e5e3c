"""Templates: escapes, policy, files inside the package."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib import resources
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from costmodel.report import render
from costmodel.report.page.render import PAGE_STYLES, SCRIPTS
from tests.support.nasty_names import nasty_names
from tests.support.page_reports import SMALL, facts, with_layers


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found
    made: dict[str, object] = json.loads(found[1])
    return made


def tags(page: str) -> list[str]:
    return [element.tag for element in ElementTree.fromstring(page).iter()]


def test_the_policy_has_the_hash_of_each_style_and_script() -> None:
    page = render(with_layers(SMALL), "html", facts=facts())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "unsafe" not in policy[1]
    for content in (r"<style>(.*?)</style>", r'<script type="module">(.*?)</script>'):
        code = re.search(content, page, re.DOTALL)
        assert code
        assert base64.b64encode(hashlib.sha256(code[1].encode()).digest()).decode() in policy[1]
    assert not re.search(r"<[^>]* (?:style|on\w+)=", page)  # the policy would refuse them


@settings(max_examples=25)
@given(nasty_names(), nasty_names())
def test_any_name_is_text_and_data(name: str, other: str) -> None:
    made = with_layers(
        {f"{name}.a": (3.0, 1.0), f"{other}.b": (5.0, 2.0)}, model=name, hardware=other, warnings=(name,)
    )
    page = render([made, made], "html", facts=facts())
    usual = with_layers({"x.a": (3.0, 1.0), "y.b": (5.0, 2.0)}, model="z", hardware="z", warnings=("z",))
    assert tags(page) == tags(render([usual, usual], "html", facts=facts()))
    data_of(page)


def test_a_page_without_layers_has_no_script() -> None:
    page = render(with_layers({}), "html")
    assert "<script" not in page
    assert "script-src &#39;none&#39;" in page


def test_data_end_no_script_element() -> None:
    page = render(with_layers({"</script>": (2.0, 1.0)}), "html")
    words = data_of(page)["words"]
    assert isinstance(words, list)
    assert "</script>" in words


@pytest.mark.parametrize("name", [*PAGE_STYLES, *SCRIPTS])
def test_files_of_the_package_end_no_block_of_a_page(name: str) -> None:
    text = resources.files("costmodel.report.page").joinpath("assets", name).read_text(encoding="utf-8")
    assert "]]>" not in text
    assert "</" not in text
    assert "innerHTML" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
