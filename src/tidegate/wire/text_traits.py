"""Recognise what a text holds beside prose: code, markup, JSON, tables, figures, formulas, pictures.

Marks that cost nothing to look for come first (a search for a fixed string runs at memory speed); patterns are tried only where a mark
stands, and on a bounded number of places. What is recognised is what a person would recognise at a glance, not what a parser would
accept:

* code: a fence (three backquotes) that is not marked as prose or as data, a line that only code has, or three different signs of code;
* XML: a declaration, a namespace, CDATA, or two closed elements; a single pair of tags round a passage, as prompts use, is none;
* SOAP: XML with an envelope, or SOAP's namespace;
* HTML: a doctype, or two closed elements or an open one of HTML's own;
* JSON: an object with a quoted name; a table: Markdown's row of dashes, or HTML's `<table`;
* figures: three numbers or more, where at least 3 of 100 characters are digits, or fifty numbers anywhere;
* formulas: LaTeX, signs of mathematics, or digits joined by `+`, `*`, `^`, `×`, `÷`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidegate.domain.features import Trait
from tidegate.wire.text_statistics import TextStatistics

_FEW_PLACES = 24
"""Places where a pattern is tried, however often its mark stands in the text."""
_FEW_NAMES = 12
_FEW_NUMBERS = 3
_MANY_NUMBERS = 50
_DENSE_PERCENT = 3
_FEW_SIGNS = 3

_FENCE_TAG = re.compile(r"```[ \t]*([\w+#.-]{0,24})")
_NOT_CODE = frozenset(
    {"text", "txt", "plain", "plaintext", "markdown", "md", "json", "jsonc", "json5", "xml", "html", "csv", "tsv", "math", "latex"}
)
_ONLY_CODE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("#", ("#include <", "#!/usr/bin/", "#!/bin/")),
    ("=", ("if __name__ ==",)),
    ("(", ("public static ", "System.out.", "console.log(", "CREATE TABLE ", "INSERT INTO ")),
    ("{", ("public class ",)),
    ("?", ("<?php",)),
    (";", ("using namespace ",)),
)
"""Each with a character that it cannot do without, which is quicker to look for: prose often has none of them."""
_SIGNS_OF_CODE: tuple[tuple[str, tuple[str, ...]], ...] = (
    (";", (";\n", "();")),
    ("{", (") {\n", "() {")),
    (":", ("):\n",)),
    ("=", ("=> ", " == ", " != ", "\nconst ", "\nlet ", "\nvar ")),
    (">", ("->",)),
    ("&", (" && ",)),
    ("}", ("\n}\n",)),
    ("(", ("self.", "    return ", "\nimport ", "\nfrom ", "\nclass ", "\nfunction ", "\nexport ")),
)
_DEFINITIONS = (
    ("(", "def ", re.compile(r"def [A-Za-z_]\w{0,79}\(")),
    ("(", "function ", re.compile(r"function [A-Za-z_$][\w$]{0,79}\(")),
    ("(", "func ", re.compile(r"func (?:\([^)\n]{1,80}\) )?[A-Za-z_]\w{0,79}\(")),
    ("(", "fn ", re.compile(r"fn [a-z_]\w{0,79}[(<]")),
    (":", "class ", re.compile(r"class [A-Za-z_]\w{0,79}(?:\([^)\n]{0,80}\))?:[ \t]*\n")),
    ("F", "SELECT", re.compile(r"SELECT\s[^;]{1,300}?\sFROM\s")),
)

_CLOSING = re.compile(r"</([A-Za-z_][\w.:-]{0,63})\s{0,8}>")
_HTML = frozenset({
    "a", "abbr", "article", "aside", "b", "blockquote", "body", "button", "caption", "code", "dd", "del", "details", "div", "dl",
    "dt", "em", "fieldset", "figure", "font", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "hr", "html",
    "i", "iframe", "ins", "label", "legend", "li", "link", "main", "mark", "meta", "nav", "ol", "option", "p", "pre", "q", "s",
    "script", "section", "select", "small", "span", "strong", "style", "sub", "summary", "sup", "svg", "table", "tbody", "td",
    "textarea", "tfoot", "th", "thead", "title", "tr", "u", "ul", "video",
})  # fmt: skip
_HTML_MARKS = ("<!doctype html", "<!DOCTYPE html", "<!DOCTYPE HTML", "<html", "<body", "<br>", "<br/>", "<br />", "<img ", "<table")
_XML_MARKS = ("<?xml", "xmlns:", "xmlns=", "<![CDATA[")
_SOAP_MARKS = (
    "schemas.xmlsoap.org/soap",
    "www.w3.org/2003/05/soap-envelope",
    "<soap:",
    "<soapenv:",
    "<SOAP-ENV:",
    "<soap12:",
    "SOAPAction",
)

_JSON_MEMBER = re.compile(r'\{\s{0,64}"[^"\n]{1,80}"\s{0,8}:')
_TABLE_ROW = re.compile(r"\n[ \t]{0,8}\|?[ \t]{0,8}:?-+:?[ \t]{0,8}(?:\|[ \t]{0,8}:?-+:?[ \t]{0,8})+\|?[ \t]*(?:\n|$)")
_TABLE_MARKS = ("-|", "- |", ":|", ": |")

_LATEX = (
    "\\frac",
    "\\sum",
    "\\int",
    "\\sqrt",
    "\\begin{",
    "\\cdot",
    "\\times",
    "\\partial",
    "\\infty",
    "\\leq",
    "\\geq",
    "\\alpha",
    "\\pi",
    "\\(",
    "\\[",
)
_SIGNS_OF_MATHEMATICS = ("$$", "∑", "∫", "√", "∂", "∇", "∝", "∞")
_INLINE_FORMULA = re.compile(r"\$[^$\n]{0,80}[\\^=][^$\n]{0,80}\$")
_TIMES = re.compile(r"[0-9)]\s?[×÷]\s?[0-9(]")
_ARITHMETIC = bytes.maketrans(b"123456789*^", b"000000000++")
"""Digits become `0`, operators `+`."""

_PICTURE_MARKS = ("data:image/", "/image/")


def traits_of(text: str, statistics: TextStatistics) -> set[str]:
    """Name all that a text holds."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    found: set[str] = set()
    if _has_code(text):
        found.add(Trait.CODE)
    if "<" in text:
        _add_markup(text, found)
    if "{" in text and _JSON_MEMBER.search(text) is not None:
        found.add(Trait.JSON)
    if "|" in text and _has_table(text):
        found.add(Trait.TABLE)
    if _has_figures(statistics):
        found.add(Trait.FIGURES)
    if _has_formulas(text, statistics):
        found.add(Trait.FORMULAS)
    if _any(_PICTURE_MARKS, text) or ("![" in text and "](" in text):
        found.add(Trait.IMAGES)
    if "data:audio/" in text:
        found.add(Trait.AUDIO)
    return found


def _any(marks: tuple[str, ...], text: str) -> bool:
    for mark in marks:  # noqa: SIM110  a generator would cost more than the search itself
        if mark in text:
            return True
    return False


def _places(text: str, mark: str) -> Iterator[int]:
    """Give the first few places where a mark stands."""
    place = text.find(mark)
    for _ in range(_FEW_PLACES):
        if place < 0:
            return
        yield place
        place = text.find(mark, place + len(mark))


def _has_code(text: str) -> bool:
    if "```" in text and _has_code_fence(text):
        return True
    for needed, marks in _ONLY_CODE:
        if needed in text and _any(marks, text):
            return True
    for needed, mark, pattern in _DEFINITIONS:
        if needed in text and mark in text:
            for place in _places(text, mark):
                if pattern.match(text, place) is not None:
                    return True
    signs = 0
    for needed, marks in _SIGNS_OF_CODE:
        if needed in text:
            for sign in marks:
                signs += sign in text
    return signs >= _FEW_SIGNS


def _has_code_fence(text: str) -> bool:
    """Look at opening fences only: every second one closes."""
    for number, place in enumerate(_places(text, "```")):
        if number % 2 == 0:
            tag = _FENCE_TAG.match(text, place)
            if tag is not None and tag[1].lower() not in _NOT_CODE:
                return True
    return False


def _add_markup(text: str, found: set[str]) -> None:
    of_html = of_others = 0
    known: dict[str, bool] = {}
    for number, closing in enumerate(_CLOSING.finditer(text)):
        if number >= _FEW_PLACES or (len(known) >= _FEW_NAMES and closing[1] not in known):
            break
        name = closing[1]
        if name not in known:
            known[name] = f"<{name}" in text
        if not known[name]:
            continue
        if name.lower() in _HTML:
            of_html += 1
        else:
            of_others += 1
    if of_html > 1 or _any(_HTML_MARKS, text):
        found.add(Trait.HTML)
    if _any(_SOAP_MARKS, text):
        found.update((Trait.XML, Trait.SOAP))
    elif of_others > 1 or _any(_XML_MARKS, text):
        found.add(Trait.XML)
    if "<table" in text:
        found.add(Trait.TABLE)


def _has_table(text: str) -> bool:
    return _any(_TABLE_MARKS, text) and _TABLE_ROW.search(text) is not None


def _has_figures(statistics: TextStatistics) -> bool:
    dense = statistics.numbers >= _FEW_NUMBERS and statistics.digits * 100 >= statistics.chars * _DENSE_PERCENT
    return dense or statistics.numbers >= _MANY_NUMBERS


def _has_formulas(text: str, statistics: TextStatistics) -> bool:
    if "\\" in text and _any(_LATEX, text):
        return True
    if "$" in text:
        for place in _places(text, "$"):
            if _INLINE_FORMULA.match(text, place) is not None:
                return True
    if _any(_SIGNS_OF_MATHEMATICS, text):
        return True
    if not statistics.digits:
        return False
    if ("×" in text or "÷" in text) and _TIMES.search(text) is not None:
        return True
    if "+" not in text and "*" not in text and "^" not in text:
        return False
    squeezed = text.encode("utf-8", "surrogatepass").translate(_ARITHMETIC, b" \t")
    return squeezed.count(b"0+0") > squeezed.count(b":00+00")  # a time zone's offset is not a sum
