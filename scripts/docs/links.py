"""Links of Markdown pages: where they stand, where they point, and which headings they may name."""

import posixpath
import re
import unicodedata

LINK = re.compile(r"(!?\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\])\(([^()\s]+)\)")


def code_spans(markdown):
    """The ranges of the text that are code, in fences and between backticks."""
    spans = [
        match.span()
        for match in re.finditer(r"^ *(```+|~~~+).*?^ *\1 *$", markdown, re.MULTILINE | re.DOTALL)
    ]
    for match in re.finditer(r"(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)", markdown, re.DOTALL):
        if not any(first <= match.start() < last for first, last in spans):
            spans.append(match.span())
    return spans


def links_of(markdown):
    """(match, target) for each link outside of code; the text of a link may be code."""
    spans = code_spans(markdown)
    for match in LINK.finditer(markdown):
        if not any(first <= match.start(2) < last for first, last in spans):
            yield match, match[2]


def is_outside(target):
    """Whether it points to the network."""
    return re.match(r"[a-z][a-z0-9+.-]*:", target) is not None


def split(target, page):
    """(path in the project, anchor) that a link of the page, a path in the project, names."""
    path, _, anchor = target.partition("#")
    return (posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page), anchor


def rewritten(markdown, replace):
    """The text with each target replaced by `replace(target)`."""
    parts, end = [], 0
    for match, target in links_of(markdown):
        parts += [markdown[end : match.start(2)], replace(target)]
        end = match.end(2)
    return "".join(parts) + markdown[end:]


def anchors_of(markdown):
    """The anchors of the headings that a forge and the site agree on."""
    found = set()
    spans = code_spans(markdown)
    for match in re.finditer(r"^#{1,6} +(.*?) *#*$", markdown, re.MULTILINE):
        if any(first <= match.start() < last for first, last in spans):
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).replace("`", "")
        forge = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text.strip().lower()))
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        site = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        if forge == site:
            found.add(site)
    return found
