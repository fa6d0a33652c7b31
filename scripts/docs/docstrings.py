"""Docstrings as Markdown, for mkdocstrings: lines `name: text` are a list."""

import re

import griffe

NAMED = re.compile(r"^([a-z]\w*): (?=\S)", re.MULTILINE)


def markdown(text):
    text = NAMED.sub(r"- `\1`: ", text)
    return re.sub(
        r"^(?!- |\s)(.+\n)(?=- )", r"\1\n", text, flags=re.MULTILINE
    )  # a list begins after an empty line


class NamedLines(griffe.Extension):
    def on_object(self, *, obj, loader, **kwargs):
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
