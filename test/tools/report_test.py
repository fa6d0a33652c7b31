"""Reports: the JSON against its schema, the structure of page, Markdown and drawing; small, large, hostile
graphs."""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import time
import unittest

from harness import ToolTest, graph

try:
    import fastjsonschema
    import onnx
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SOURCE = os.environ["FUSION_SOURCE"]
LLAMA = os.path.join(SOURCE, "examples", "llama", "model.onnx")
LAYERS = 80
BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
HOSTILE = "</script><script>alert(1)</script>\"'`\n<!--\\\u2028&amp;{{script}}"


def strict(schema):
    """The schema with no other keys than it describes: what is written is documented."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema else {}
    return {**closed, **{key: strict(value) for key, value in schema.items()}}


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent, self.children = tag, dict(attributes), parent, []  # and texts

    def walk(self):
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def find(self, tag=None, **attributes):
        return [element for element in self.walk() if tag in (None, element.tag) and all(
            value in element.attributes.get(key.rstrip("_"), "").split(" ")
            for key, value in attributes.items())]

    @property
    def text(self):
        return "".join(child.text if isinstance(child, Element) else child for child in self.children)


class Parser(html.parser.HTMLParser):
    VOID = {"meta", "input", "br", "link", "img"}

    def __init__(self, text):
        super().__init__()
        self.root = self.at = Element("", [], None)
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        made = Element(tag, attributes, self.at)
        self.at.children.append(made)
        if tag not in self.VOID:
            self.at = made

    def handle_startendtag(self, tag, attributes):
        self.at.children.append(Element(tag, attributes, self.at))

    def handle_endtag(self, tag):
        at = self.at
        while at.parent and at.tag != tag:
            at = at.parent
        if at.parent:
            self.at = at.parent

    def handle_data(self, data):
        self.at.children.append(data)


def parsed(page):
    return Parser(page).root


def data_of(page):
    return json.loads(parsed(page).find("script")[0].text)


class ReportTest(ToolTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(os.path.join(SOURCE, "docs", "report.schema.json")) as file:
            schema = json.load(file)
        fastjsonschema.compile(schema)
        cls.validate = staticmethod(fastjsonschema.compile(strict(schema)))
        cls.browser = next(filter(None, map(shutil.which, BROWSERS)), None)

    def report(self, model, ending, *options):
        self.run_tool("fusion-opt", model, "--fuse", "--quiet", f"--report=r.{ending}", "-o", "out", *options)
        return self.read(f"r.{ending}")

    def large(self):
        script = os.path.join(SOURCE, "scripts", "make_llama.py")
        subprocess.run([sys.executable, script, self.path("large.onnx"), f"--layers={LAYERS}"], check=True)
        return "large.onnx"

    def check(self, report):
        """It follows the schema, and its numbers lead where they should."""
        self.validate(report)
        nodes = report["graph"]
        layers = len(nodes["layers"])
        at = 0
        for fold in nodes["folds"]:
            self.assertEqual(fold["first"], at)
            for layer in range(at, at + fold["layers"] * fold["times"]):
                same = at + (layer - at) % fold["layers"]
                self.assertEqual(nodes["layers"][layer]["like"], nodes["layers"][same]["like"])
            at += fold["layers"] * fold["times"]
        self.assertEqual(at, layers)
        for side in ("before", "after"):
            for number, node in enumerate(nodes[side]):
                self.assertLess(max(node["inputs"], default=-1), number)
                self.assertLess(node.get("layer", -1), layers)
        for node in nodes["before"]:
            if "node" in node:
                after = nodes["after"][node["node"]]
                self.assertIn(node["ops"][0], after["ops"])
                self.assertEqual(node.get("fusion"), after.get("fusion"))
        for name, pattern in report["patterns"].items():
            for site in pattern["sites"]:
                if site["bytes_saved"] > 0:
                    self.assertEqual(nodes["after"][site["node"]]["fusion"], name)
            for miss in pattern["missed"]:
                if miss["location"]:
                    self.assertEqual(nodes["before"][miss["node"]]["location"], miss["location"])
        kernels = {kernel["name"] for kernel in report.get("kernel_sources", ())}
        self.assertEqual(kernels, {launch["kernel"] for launch in report.get("launches", ())})
        for launch in report.get("launches", ()):
            self.assertEqual(nodes["after"][launch["node"]].get("fusion", ""), launch["fusion"])

    def check_page(self, page, report):
        """One file that fetches nothing, and holds the report as data that no name can end."""
        self.assertTrue(page.startswith("<!doctype html>"))
        root = parsed(page)
        scripts = root.find("script")
        self.assertEqual([script.attributes.get("type") for script in scripts], ["application/json", None])
        self.assertEqual(json.loads(scripts[0].text), report)
        self.assertNotIn("<", scripts[0].text)
        self.assertFalse([e for e in root.walk() if {"src", "href"} & set(e.attributes)])
        rest = page.replace(scripts[0].text, "")
        self.assertNotRegex(rest.replace("http://www.w3.org/2000/svg", ""),
                            r"https?:|url\(|@import|fetch\(|import\(")
        self.assertNotRegex(rest, r"innerHTML|outerHTML|document\.write|eval\(|insertAdjacent")
        self.assertNotIn("{{", rest)

    def shown(self, address=""):
        """The page's elements after its scripts ran; what they do not catch fails the test."""
        if not self.browser:
            print(f"skipped: none of {', '.join(BROWSERS)} is installed", file=sys.stderr)
            self.skipTest("no browser")
        process = subprocess.run(
            [self.browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1500,1000",
             "--dump-dom",
             "--enable-logging=stderr", "--v=0", f"--user-data-dir={self.path('profile')}",
             f"file://{self.path('r.html')}{address}"],
            capture_output=True, text=True, timeout=120, check=True)
        self.assertNotIn("Uncaught", process.stderr)
        return parsed(process.stdout)


class Small(ReportTest):
    page = None

    def example(self):
        """The example's page, which is made once, as r.html, and what it holds."""
        if not Small.page:
            Small.page = self.report(LLAMA, "html")
        self.write("r.html", Small.page)
        return data_of(Small.page)

    def test_json_and_page(self):
        report = json.loads(self.report(LLAMA, "json"))
        self.check(report)
        self.example()
        self.check_page(Small.page, report)
        names = [layer["name"] for layer in report["graph"]["layers"]]
        self.assertEqual(names, ["m.model.layers.0", "m.model.layers.1"])
        for kernel in report["kernel_sources"]:
            self.assertIn(kernel["name"], kernel.get("source", "library " + kernel["name"]))
        missed = report["patterns"]["norm_matmul"]["missed"]
        # The norm's result, 128 rows of 128 f16, is written once and read by three matmuls; the group that they are in
        # reads it once.
        self.assertEqual(max(miss["bytes"] for miss in missed), 2 * 128 * 128 * 2)
        self.assertTrue(report["patterns"]["norm_matmul"]["applies"])
        self.assertFalse(report["patterns"]["expert_matmul"]["applies"])

    def test_unfused_and_without_a_plan(self):
        self.write("m.mlir", """func.func @main(%x: tensor<4x8xf64>) -> tensor<4x8xf64> {
          %0 = nn.softmax %x {axis = -1 : i64} : (tensor<4x8xf64>) -> tensor<4x8xf64>
          return %0 : tensor<4x8xf64>
        }""")
        report = json.loads(self.report("m.mlir", "json", "--target=sm_80"))
        self.check(report)
        self.assertEqual(report["graph"]["layers"], [])

    def test_times_of_a_profile(self):
        folder = os.path.dirname(LLAMA)
        for ending in ("json", "md"):
            self.run_tool("fusion-run", LLAMA, f"--inputs={folder}/inputs.safetensors", "--device=emulate",
                          "--profile=trace.json", f"--report=r.{ending}", "--quiet")
        report = json.loads(self.read("r.json"))
        self.check(report)
        timed = [launch for launch in report["launches"] if launch.get("microseconds", 0) > 0]
        # Three norms between matmuls have no kernel of their own for these 32 rows.
        linked = [launch for launch in timed if launch.get("condition", "").endswith(", linked")]
        self.assertEqual(len(linked), 6)
        self.assertEqual(len(timed), report["kernels"]["after"] - 3)
        self.assertIn("| first at | time |", self.read("r.md"))

    def test_markdown(self):
        text = self.report(LLAMA, "md")
        self.assertIn("3.84 MiB → 2.33 MiB", text)
        self.assertIn("\n- nothing for them in this graph: add_norm_quant,", text)
        self.assertLess(text.index("## `m.model.layers.0`"), text.index("## `m.model.layers.1`"))
        misses = text.split("the dearest first")[1]
        rows = re.findall(r"^\| ([^|]*) \| \d+ \| \w+ \| [^|]* \| [^|]* \|$", misses, re.MULTILINE)
        self.assertEqual(rows[:3], ["64 KiB", "64 KiB", "64 KiB"])
        self.assertGreater(len(rows), 7)
        self.assertEqual(set(rows[3:]), {""})

    def test_page_in_a_browser(self):
        report = self.example()
        root = self.shown()
        for side in ("before", "after"):
            pane = root.find(id=side)[0]
            self.assertEqual(len(pane.find("g", class_="box")), len(report["graph"][side]))
            self.assertEqual(len(pane.find("g", class_="layer")), 2)
            self.assertTrue(pane.find("path", class_="edge"))
        fused = [node for node in report["graph"]["after"] if "fusion" in node]
        self.assertEqual(len(root.find(id="after")[0].find("g", class_="fused")), len(fused))
        lost = {miss["node"] for pattern in report["patterns"].values()
                for miss in pattern["missed"] if miss["bytes"]}
        self.assertEqual(len(root.find(id="before")[0].find("circle")), len(lost))
        rows = root.find(id="tab-misses")[0].find("tr")[1:]
        self.assertIn("64 KiB", rows[0].text)
        self.assertTrue([row for row in rows if row.attributes.get("class", "").endswith("inapplicable")])
        self.assertEqual(len(root.find(id="tab-kernels")[0].find("tr")) - 1, len(report["kernel_sources"]))

    def test_what_was_clicked(self):
        report = self.example()
        sites = report["patterns"]["gated_matmul"]["sites"]
        root = self.shown(f"#after={sites[0]['node']}&tab=kernels")
        details = root.find(id="details")[0]
        text = details.text
        for part in ("gated_matmul", sites[0]["location"], "224 KiB", "416 KiB", "gemm", "struct Config"):
            self.assertIn(part, text)
        self.assertEqual(len(root.find(id="before")[0].find("g", class_="related")), 4)
        self.assertEqual(len(root.find(id="after")[0].find("g", class_="selected")), 1)
        self.assertNotIn("hidden", root.find(id="tab-kernels")[0].attributes)
        name = report["kernel_sources"][0]["name"]
        self.assertIn(report["kernel_sources"][0]["source"].strip(),
                      self.shown(f"#kernel={name}").find(id="details")[0].text)

    def test_search(self):
        self.example()
        root = self.shown("#search=layers.1+rope&next=1")
        self.assertEqual(root.find(id="found")[0].text, "1 of 3")
        self.assertEqual(len(root.find(id="after")[0].find("g", class_="hit")), 1)
        self.assertEqual(len(root.find(id="before")[0].find("g", class_="hit")), 2)


class Large(ReportTest):
    def test_layers_fold(self):
        model = self.large()
        page = self.report(model, "html", "--emit=dot")
        report = data_of(page)
        self.check(report)
        self.assertEqual(report["graph"]["folds"], [{"first": 0, "layers": 1, "times": 1},  # with the embedding
                                                    {"first": 1, "layers": 1, "times": LAYERS - 2},
                                                    {"first": LAYERS - 1, "layers": 1, "times": 1}])
        self.assertLess(self.read("out").count("\n"), 100)
        self.assertIn(f"model.layers.1 to model.layers.{LAYERS - 2}: {LAYERS - 2} alike", self.read("out"))
        if shutil.which("dot"):
            begin = time.monotonic()
            subprocess.run(["dot", "-Tsvg", self.path("out"), "-o", self.path("out.svg")], check=True,
                           timeout=60)
            print(f"dot: {time.monotonic() - begin:.2f} s", file=sys.stderr)
        print(f"page: {len(page) / 2**20:.2f} MiB", file=sys.stderr)
        self.assertLess(len(page), 4 << 20)
        self.check_page(page, report)
        text = self.report(model, "md")
        self.assertLess(len(text), 20 << 10)
        self.assertIn(f"`model.layers.1` … `model.layers.{LAYERS - 2}`: {LAYERS - 2} alike", text)
        self.in_a_browser(report)

    def in_a_browser(self, report):
        if not self.browser:
            print(f"skipped: none of {', '.join(BROWSERS)} is installed", file=sys.stderr)
            return
        nodes = report["graph"]["after"]
        drawn = [node for node in nodes if node.get("layer", 0) in (0, 1, LAYERS - 1)]
        begin = time.monotonic()
        root = self.shown()
        print(f"browser: {time.monotonic() - begin:.2f} s", file=sys.stderr)
        pane = root.find(id="after")[0]
        self.assertEqual(len(pane.find("g", class_="box")), len(drawn))
        self.assertEqual(len(pane.find("g", class_="fold")), 1)
        self.assertLess(len(root.find(id="tab-misses")[0].find("tr")), 40)
        root = self.shown("#layers=all")
        self.assertEqual(len(root.find(id="after")[0].find("g", class_="box")), len(nodes))
        # What is searched for in a folded layer is unfolded.
        root = self.shown("#search=layers.37+gated_matmul&next=1")
        self.assertIn("model.layers.37.mlp", root.find(id="details")[0].text)
        selected = root.find(id="after")[0].find("g", class_="selected")
        self.assertEqual(len(selected), 1)
        self.assertEqual(len(root.find(id="after")[0].find("g", class_="shut")), LAYERS - 3)


def alternating(named):
    """Eight layers of a norm, an activation, a scan and a sum, whose activations alternate."""
    kind = "tensor<4x128xf32>"
    lines, last = [], "%x"
    for layer in range(8):
        activation = ("silu", "softplus")[layer % 2]
        for number, text in enumerate((f"nn.rms_norm {last}, %w {{eps = 1.0e-6 : f32}} : ({kind}, tensor<128xf32>) -> {kind}",
                                       f"nn.{activation} %v{layer}_0 : ({kind}) -> {kind}",
                                       f"nn.cumsum %v{layer}_1 {{axis = 1 : i64, exclusive = false, reverse = false}} : ({kind}) -> {kind}",
                                       f"nn.add %v{layer}_2, {last} : ({kind}, {kind}) -> {kind}")):
            lines.append(f"%v{layer}_{number} = {text}" + (f' loc("h.{layer}.op")' if named else ""))
        last = f"%v{layer}_3"
    return (f"func.func @main(%x: {kind}, %w: tensor<128xf32>) -> {kind} {{\n" + "\n".join(lines) +
            f"\nreturn {last} : {kind}\n}}")


class Alternating(ReportTest):
    def test_by_name_and_by_structure(self):
        for named in (True, False):
            self.write("m.mlir", alternating(named))
            report = data_of(self.report("m.mlir", "html"))
            self.check(report)
            layers = report["graph"]["layers"]
            if named:
                # A sum goes with the next layer's norm. The first norm reads no sum, the second a sum with an
                # input, and the last sum stays alone: these layers are like no other.
                self.assertEqual([layer["like"] for layer in layers], [0, 1, 2, 3, 2, 3, 2, 7])
                self.assertIn({"first": 2, "layers": 2, "times": 2}, report["graph"]["folds"])
            else:  # a repeat is two layers here
                self.assertGreaterEqual(len(layers), 3)
                self.assertEqual({layer["name"].split(" ")[0] for layer in layers}, {"repeat"})

    def test_page(self):
        self.write("m.mlir", alternating(True))
        report = data_of(self.report("m.mlir", "html"))
        pane = self.shown().find(id="after")[0]
        self.assertEqual(len(pane.find("g", class_="fold")), 1)
        self.assertEqual(len(pane.find("g", class_="layer")), 6)
        drawn = [node for node in report["graph"]["after"] if node.get("layer") not in (4, 5)]
        self.assertEqual(len(pane.find("g", class_="box")), len(drawn))


class Hostile(ReportTest):
    def make(self):
        model = onnx.load(LLAMA)
        main = model.graph
        main.name += HOSTILE
        for node in main.node:
            node.name += HOSTILE
            for entry in node.metadata_props:
                if entry.key == "pkg.torch.onnx.name_scopes":
                    entry.value = re.sub(r"'([^']*)'", lambda match: repr(match[1] + HOSTILE), entry.value)
        onnx.save(model, self.path("hostile.onnx"))
        for name in os.listdir(os.path.dirname(LLAMA)):
            if not os.path.exists(self.path(name)) and name != "model.onnx":
                shutil.copy(os.path.join(os.path.dirname(LLAMA), name), self.path(name))
        return "hostile.onnx"

    def test_names_are_text(self):
        model = self.make()
        page = self.report(model, "html")
        report = data_of(page)
        self.check(report)
        self.assertIn("</script>", json.dumps(report["graph"]["after"]))
        self.check_page(page, report)
        root = self.shown("#after=20")
        self.assertEqual(len(root.find("script")), 2)
        self.assertIn("<script>alert(1)</script>", root.find(id="details")[0].text)


if __name__ == "__main__":
    unittest.main()
