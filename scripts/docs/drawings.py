"""Drawings of small graphs before and after a fusion, by the tool's own --emit=dot and Graphviz."""

import re
import subprocess

NODE = (
    'node [shape=box, style="rounded,filled", fillcolor="#eef2f7", color="#7d8ba0", fontname="Helvetica",'
    ' fontsize=11, margin="0.12,0.05", height=0.3];'
)
EDGE = 'edge [color="#5b6676", arrowsize=0.6, fontname="Helvetica", fontsize=9, fontcolor="#5b6676"];'


def command_of(graph):
    """The options of fusion-opt that a graph's first line says, without the file."""
    words = graph.read_text().split("\n", 1)[0].split()
    if words[:3] != ["//", "fusion-opt", graph.name]:
        raise ValueError(f"{graph}: the first line is not // fusion-opt {graph.name} OPTION...")
    return words[3:]


def printed(tool, graph, options):
    command = [str(tool), graph.name, *options, "--quiet"]
    done = subprocess.run(command, cwd=graph.parent, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def steps(tool, graph):
    """What the plan launches, without its buffers."""
    plan = printed(tool, graph, [*command_of(graph), "--emit=plan"])
    lines = plan[re.search(r"^\d+: ", plan, re.MULTILINE).start() :].rstrip().split("\n")
    return "\n".join(re.sub(r" +// .*$", "", line) for line in lines)


def dot(tool, graph, options):
    """The graph as dot, in a style of its own and without the places in the file."""
    text = re.sub(r" @ [^\"]*\"", '"', printed(tool, graph, [*options, "--emit=dot"]))
    text = re.sub(
        r"^  node \[.*$",
        f"  bgcolor=transparent; nodesep=0.25; ranksep=0.3; {NODE} {EDGE}",
        text,
        flags=re.MULTILINE,
    )
    text = with_types_at_ports(text)
    text = text.replace("[shape=ellipse,", '[shape=plaintext, fillcolor="none", fontsize=10,')
    return re.sub(r'\[style=filled, fillcolor="[^"]*", label="(\w+): (.*?)"\]', grouped, text)


def with_types_at_ports(text):
    """Types of inputs and outputs below their names and not at each edge."""
    edge = re.compile(r'(\w+) -> (\w+) \[label="([^"]*)"\]')
    types = {}
    for source, target, label in edge.findall(text):
        types[source if source.startswith("input") else target] = label

    def bare(match):
        ends = match[1].startswith("input") or match[2].startswith("output")
        return f"{match[1]} -> {match[2]}" if ends else match[0]

    def typed(match):
        return f'{match[1]}{match[2]}\\n{types[match[1]]}"' if match[1] in types else match[0]

    text = edge.sub(bare, text)
    return re.sub(r'((?:input|output)\d+)( \[[^\]]*label="[^"]*)"', typed, text)


def grouped(match):
    """A fusion's node: its name, and its ops one below the other."""
    ops = match[2].replace(" + ", "\\n")
    return f'[fillcolor="#e3f1e4", color="#5f9e64", label="{match[1]}\\n\\n{ops}"]'


def svg(dot):
    text = subprocess.run(["dot", "-Tsvg"], input=dot, text=True, check=True, capture_output=True).stdout
    return re.sub(r"<!--.*?-->\s*", "", text[text.index("<svg") :], flags=re.DOTALL)


def before_and_after(tool, graph):
    """Two SVG elements."""
    plain = [
        option for option in command_of(graph) if not option.startswith(("--fuse", "--require", "--profit"))
    ]
    return svg(dot(tool, graph, plain)), svg(dot(tool, graph, command_of(graph)))
