"""What fused and what did not, with reasons."""

import json

from . import _core
from ._errors import AnswerIsNo, BadInput


class Report:
    """The fusion report. str() is markdown; a notebook shows it as a page."""

    def __init__(self, text):
        self._text = text  # text(format) -> str

    def json(self):
        """The report as a dict."""
        return json.loads(self._text("json"))

    def markdown(self):
        """The report as markdown text."""
        return self._text("markdown")

    def html(self):
        """The report as one self-contained page, which draws the graph before and after fusion."""
        return self._text("html")

    def write(self, path):
        """Writes .json, .md or .html, by the path's end."""
        formats = {"json": "json", "md": "markdown", "html": "html"}
        end = str(path).rsplit(".", 1)[-1]
        if end not in formats:
            raise BadInput(f"a report is written as .json, .md or .html, not '{path}'")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._text(formats[end]))

    def fired(self, pattern):
        """How often a pattern fired; 0 for an unknown name."""
        return self.json().get("patterns", {}).get(pattern, {}).get("fired", 0)

    def require(self, pattern, times):
        """Raises AnswerIsNo unless the pattern fired exactly `times`."""
        found = self.fired(pattern)
        if found != times:
            raise AnswerIsNo(f"{pattern} fired {found} times, {times} are required")

    def __str__(self):
        return self.markdown()

    def _repr_markdown_(self):
        return self.markdown()

    def _repr_html_(self):
        return f'<iframe style="width:100%;height:60em;border:0" srcdoc="{_quoted(self.html())}"></iframe>'


def _quoted(page):
    return page.replace("&", "&amp;").replace('"', "&quot;")


def of_json(text):
    return Report(lambda format: text if format == "json" else _core.report_text(text, format))
