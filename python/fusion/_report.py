"""What fused and what did not, with reasons."""

import json
from typing import NamedTuple, Optional

from . import _core
from ._errors import AnswerIsNo, BadInput
from ._options import did_you_mean


class Site(NamedTuple):
    """A place where a fusion fired."""

    fusion: str  #: its pattern: 'add_norm'
    location: str  #: 'model.layers.0.mlp'
    ops: tuple  #: in order: ('nn.add', 'nn.rms_norm')
    bytes_saved: int  #: of memory traffic, at the report's nominal sizes
    microseconds: Optional[tuple] = None  #: (fused, unfused), where fusions were measured
    assumes: Optional[str] = None  #: what was taken for granted


class Miss(NamedTuple):
    """A place where a fusion did not fire, though the graph has some of its ops."""

    fusion: str
    location: str  #: empty: everywhere
    reason: str
    bytes: int  #: of traffic that it would save, beyond what was fused instead


class Change(NamedTuple):
    """A number before and after fusion."""

    before: int
    after: int


class Report:
    """The fusion report. str() is markdown; a notebook shows it as a page."""

    def __init__(self, text):
        self._text = text  # text(format) -> str
        self._facts = None

    def _known(self):
        if self._facts is None:
            self._facts = self.json()
        return self._facts

    @property
    def model(self):
        """The file, or what the model was called."""
        return self._known()["model"]

    @property
    def target(self):
        """The architecture: 'sm_90a'."""
        return self._known()["target"]

    @property
    def kernels(self):
        """Launches of a run before and after fusion, a Change."""
        return Change(**self._known()["kernels"])

    @property
    def bytes(self):
        """Memory traffic of a run in bytes before and after fusion, a Change, at the sizes that
        json()['nominal'] gives to symbolic dims."""
        return Change(**self._known()["bytes"])

    @property
    def sites(self):
        """Where fusions fired: a list of Site, in the order of the graph."""
        found = []
        for fusion, pattern in self._known()["patterns"].items():
            for site in pattern["sites"]:
                times = site.get("microseconds")
                times = None if times is None else (times["fused"], times["unfused"])
                made = Site(
                    fusion,
                    site["location"],
                    tuple(site["ops"]),
                    site["bytes_saved"],
                    times,
                    site.get("assumes"),
                )
                found.append((site.get("node", -1), made))
        return [site for _, site in sorted(found, key=lambda each: each[0])]

    @property
    def misses(self):
        """Where fusions did not fire, and why: a list of Miss, the dearest first. Fusions of which the graph
        has no two ops together are left out."""
        found = [
            Miss(fusion, miss["location"], miss["reason"], miss["bytes"])
            for fusion, pattern in self._known()["patterns"].items()
            if pattern["applies"]
            for miss in pattern["missed"]
        ]
        return sorted(found, key=lambda miss: -miss.bytes)

    def json(self):
        """The report as a dict; docs/report.schema.json describes it."""
        return json.loads(self._text("json"))

    def markdown(self):
        """The report as markdown text."""
        return self._text("markdown")

    def html(self):
        """The report as one self-contained page, which draws the graph before and after fusion."""
        return self._text("html")

    def write(self, path):
        """Writes .json, .md or .html, by the path's end; raises BadInput for another."""
        formats = {"json": "json", "md": "markdown", "html": "html"}
        end = str(path).rsplit(".", 1)[-1]
        if end not in formats:
            raise BadInput(f"a report is written as .json, .md or .html, not '{path}'")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._text(formats[end]))

    def fired(self, fusion):
        """How often a fusion fired, by the name of its pattern or, for a named op that was found in a
        decomposed spelling, of the op: 'add_norm', 'rms_norm'. Raises BadInput for an unknown name."""
        facts = self._known()
        for kind in ("patterns", "raises"):
            if fusion in facts[kind]:
                return facts[kind][fusion]["fired"]
        raise BadInput(f"there is no fusion '{fusion}'" + did_you_mean(fusion, facts["patterns"]))

    def require(self, fusion, times):
        """Raises AnswerIsNo unless the fusion fired exactly `times`, with the reasons where it did not."""
        found = self.fired(fusion)
        if found == times:
            return
        reasons = [f"{miss.location}: {miss.reason}" for miss in self.misses if miss.fusion == fusion]
        why = f"; missed at {reasons[0]}" if reasons and found < times else ""
        more = f"; {len(reasons) - 1} more are in report.misses" if why and len(reasons) > 1 else ""
        raise AnswerIsNo(f"{fusion} fired {found} times, {times} are required{why}{more}")

    def __str__(self):
        return self.markdown()

    def __repr__(self):
        kernels = self.kernels
        return (
            f"<fusion.Report of {self.model} for {self.target}: kernels {kernels.before} -> {kernels.after}, "
            f"{len(self.sites)} fusions, {len(self.misses)} misses>"
        )

    def __reduce__(self):  # for pickle and copy: what a program says of it now
        return of_json, (self._text("json"),)

    def _repr_markdown_(self):
        return self.markdown()

    def _repr_html_(self):
        return f'<iframe style="width:100%;height:60em;border:0" srcdoc="{_quoted(self.html())}"></iframe>'


def _quoted(page):
    return page.replace("&", "&amp;").replace('"', "&quot;")


def of_json(text):
    return Report(lambda format: text if format == "json" else _core.report_text(text, format))
