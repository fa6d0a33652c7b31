"""Hooks of MkDocs: pages that are generated, drawings of fusions, and links into the project.

Pages of docs/ link to files of the project as a forge shows them. On the site those files are pages too,
under sources/.
"""

import os
import pathlib
import posixpath
import re
import sys

import mkdocs.structure.files as structure

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True

import drawings, headers, links, reference  # noqa: E401

BINARIES = ROOT / "build/bin"
MLIR = pathlib.Path(os.environ.get("FUSION_MLIR_INCLUDE", "/usr/lib/llvm-22/include"))
LANGUAGES = {
    ".h": "cpp",
    ".cpp": "cpp",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".c": "c",
    ".td": "tablegen",
    ".py": "python",
    ".sh": "bash",
}
PICTURE = re.compile(r"^<!-- fusion: (\w+) -->$", re.MULTILINE)
LARGEST = 200_000  # bytes of a file that becomes a page

origins = {}  # a page of the site -> the file in the project


def generated():
    cpp = (
        "What applications include, in the order of the headers. All names are in the namespace `fusion`.\n\n"
        "```cpp\n#include <fusion/Fusion.h>\n```"
    )
    c = "One header, one shared library. Made of the header itself.\n\n```c\n#include <fusion.h>\n```"
    return {
        "reference/flags.md": reference.flags(BINARIES),
        "reference/cpp.md": headers.reference("C++", cpp, ROOT, headers.public_headers(ROOT), "cpp"),
        "reference/c.md": headers.reference("C", c, ROOT, ["api/c/fusion.h"], "c"),
        "reference/python.md": reference.python(ROOT / "python/fusion"),
        "reference/ops.md": reference.ops(ROOT, MLIR),
    }


def on_files(files, config):
    origins.clear()
    for uri, text in generated().items():
        files.append(structure.File.generated(config, uri, content=text))
    left = []
    for file in files.documentation_pages():
        if file.abs_src_path and pathlib.Path(file.abs_src_path).is_relative_to(ROOT):
            origins[file.src_uri] = pathlib.Path(file.abs_src_path).relative_to(ROOT).as_posix()
            left += linked(origins[file.src_uri])
    known = set()
    for path in left:  # grows
        if path in known:
            continue
        known.add(path)
        source, uri = ROOT / path, uri_of(path)
        if is_page(source):
            files.append(structure.File.generated(config, uri, content=page_of(path)))
            origins[uri] = path
            left += linked(path)
        else:
            files.append(structure.File.generated(config, uri, abs_src_path=str(source)))
    return files


def linked(path):
    """Files of the project outside of docs/ that a page links to, or that a folder's page lists."""
    source = ROOT / path
    if source.is_dir():
        found = (each.relative_to(ROOT).as_posix() for each in listed(source))
        return [each for each in found if not is_in_docs(each)]
    if source.suffix != ".md":
        return []
    targets = (target for _, target in links.links_of(source.read_text()) if not links.is_outside(target))
    found = (links.split(target, path)[0] for target in targets)
    return [each for each in found if not is_in_docs(each) and each != path and (ROOT / each).exists()]


def is_in_docs(path):
    """Whether MkDocs takes the file by itself."""
    return path.startswith("docs/") and not (ROOT / path).is_dir()


def listed(folder):
    return sorted(each for each in folder.iterdir() if each.is_file())


def is_page(source):
    if source.is_dir() or source.suffix == ".md":
        return True
    return source.suffix not in (".json", ".svg", ".safetensors", ".onnx") and source.stat().st_size < LARGEST


def uri_of(path):
    """Where the site has a file of the project."""
    if is_in_docs(path):
        return path[len("docs/") :]
    source = ROOT / path
    end = "/index.md" if source.is_dir() else ".md" if source.suffix != ".md" and is_page(source) else ""
    return f"sources/{path}{end}"


def page_of(path):
    source = ROOT / path
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"
    if source.is_dir():
        return (
            hidden + f"# {path}/\n\n" + "".join(f"- [{each.name}]({each.name})\n" for each in listed(source))
        )
    if source.suffix == ".md":
        return hidden + source.read_text()
    language = LANGUAGES.get(source.suffix, "text")
    return hidden + f"# {path}\n\n~~~~~~ {language}\n{source.read_text().rstrip()}\n~~~~~~\n"


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if uri in origins:
        origin = origins[uri] + "/." if (ROOT / origins[uri]).is_dir() else origins[uri]

        def replace(target):
            if links.is_outside(target) or target.startswith("#"):
                return target
            path, anchor = links.split(target, origin)
            if path.startswith("docs/reference/") or not (ROOT / path).exists():
                return target
            return posixpath.relpath(uri_of(path), posixpath.dirname(uri)) + ("#" + anchor if anchor else "")

        markdown = links.rewritten(markdown, replace)
    return PICTURE.sub(lambda match: picture(match[1]), markdown)


def picture(name):
    """What the page of fusions shows of one: the graph before and after, the graph as text, the pattern."""
    graph = ROOT / "docs/fusions" / f"{name}.mlir"
    before, after = drawings.before_and_after(BINARIES / "fusion-opt", graph)
    parts = [
        f'<div class="fusion-pictures"><figure>{flat(before)}<figcaption>before</figcaption></figure>'
        f"<figure>{flat(after)}<figcaption>after</figcaption></figure></div>",
        folded("The graph", "text", graph.read_text()),
        folded("The plan, for sm_90a", "text", drawings.steps(BINARIES / "fusion-opt", graph)),
    ]
    pattern = ROOT / "patterns" / f"{name}.pdll"
    if pattern.exists():
        parts.append(folded(f"patterns/{name}.pdll", "text", pattern.read_text()))
    return "\n\n".join(parts)


def flat(svg):
    return " ".join(svg.split())


def folded(title, language, text):
    inner = f"~~~~~~ {language}\n{text.rstrip()}\n~~~~~~"
    return f'??? note "{title}"\n\n' + "\n".join("    " + line if line else "" for line in inner.split("\n"))
