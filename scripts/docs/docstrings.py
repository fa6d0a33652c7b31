"""Docstrings as Markdown, for mkdocstrings: lines `name: text` are a list. Functions that take the options of
compile() show them as the stub lists them."""

import pathlib
import re

import griffe

NAMED = re.compile(r"^([a-z]\w*): (?=\S)", re.MULTILINE)


def markdown(text):
    text = NAMED.sub(r"- `\1`: ", text)
    return re.sub(
        r"^(?!- |\s)(.+\n)(?=- )", r"\1\n", text, flags=re.MULTILINE
    )  # a list begins after an empty line


STUB = pathlib.Path(__file__).parents[2] / "python/fusion/__init__.pyi"


class NamedLines(griffe.Extension):
    def __init__(self):
        super().__init__()
        self.stub = griffe.visit("fusion", filepath=STUB, code=STUB.read_text())
        keyword = griffe.ParameterKind.keyword_only
        self.options = [each for each in self.stub["compile"].parameters if each.kind is keyword]

    def on_function(self, *, func, loader, **kwargs):
        if any("with_options" in str(each.value) for each in func.decorators):
            place = [func.parent.name, func.name] if func.parent.is_class else [func.name]
            own = self.stub[".".join(place)].parameters
            func.parameters = griffe.Parameters(
                *(each for each in own if each.kind is not griffe.ParameterKind.var_keyword),
                *(each for each in self.options if each.name not in own),
            )

    def on_object(self, *, obj, loader, **kwargs):
        if not obj.is_alias and obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
