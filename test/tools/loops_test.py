"""Recurrent ops, Scan and Loop on the CPU and emulated, against numpy."""
import unittest

from harness import ToolTest

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77)

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {
    "Sigmoid": lambda x, a, b: 1 / (1 + numpy.exp(-x)),
    "Tanh": lambda x, a, b: numpy.tanh(x),
    "Relu": lambda x, a, b: numpy.maximum(x, 0),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: numpy.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: numpy.where(x > a, x, 0),
    "ScaledTanh": lambda x, a, b: a * numpy.tanh(b * x),
    "HardSigmoid": lambda x, a, b: numpy.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: numpy.where(x < 0, a * (numpy.exp(x) - 1), x),
    "Softsign": lambda x, a, b: x / (1 + numpy.abs(x)),
    "Softplus": lambda x, a, b: numpy.log1p(numpy.exp(x)),
}
USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def one_direction(op, x, w, r, bias, lengths, h, c, peepholes, functions, clip=None, coupled=False,
                  after=False):
    """The definition, sequence by sequence and step by step: outputs of all steps, and the last state."""
    size, y = r.shape[1], numpy.zeros((*x.shape[:2], r.shape[1]))
    own, recurrent = bias[: GATES[op] * size], bias[GATES[op] * size :]
    clipped = (lambda v: numpy.clip(v, -clip, clip)) if clip else (lambda v: v)
    f = [lambda v, one=one: one(clipped(v)) for one in functions]
    part = lambda v, i: v[i * size : (i + 1) * size]
    h, c = h.copy(), c.copy()
    for b in range(x.shape[1]):
        for t in range(lengths[b]):
            given = w @ x[t, b] + own
            if op == "RNN":
                h[b] = f[0](given + r @ h[b] + recurrent)
            elif op == "GRU":
                old = r @ h[b] + recurrent
                z, reset = f[0](part(given + old, 0)), f[0](part(given + old, 1))
                past = reset * part(old, 2) if after else part(r, 2) @ (reset * h[b]) + part(recurrent, 2)
                h[b] = (1 - z) * f[1](part(given, 2) + past) + z * h[b]
            else:
                all_gates = given + r @ h[b] + recurrent
                i = f[0](part(all_gates, 0) + part(peepholes, 0) * c[b])
                forget = 1 - i if coupled else f[0](part(all_gates, 2) + part(peepholes, 2) * c[b])
                c[b] = forget * c[b] + i * f[1](part(all_gates, 3))
                out = f[0](part(all_gates, 1) + part(peepholes, 1) * c[b])
                h[b] = out * functions[2](c[b])
            y[t, b] = h[b]
    return y, h, c


def turned(x, lengths):
    """Each sequence backwards within its length."""
    made = x.copy()
    for b, length in enumerate(lengths):
        made[:length, b] = x[:length, b][::-1]
    return made


class Loops(ToolTest):
    def compare(self, nodes, inputs, weights, feeds, expected, devices=("cpu",), opset=17):
        outputs = [info(name, FLOAT, None) for name in expected]
        initialisers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
        graph = helper.make_graph(nodes, "g", inputs, outputs, initialisers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.save(model, self.path("m.onnx"))
        save_file({name: numpy.array(value, order="C") for name, value in feeds.items()},
                  self.path("in.safetensors"))
        expected = {name: numpy.array(value, numpy.float32, order="C") for name, value in expected.items()}
        save_file(expected, self.path("out.safetensors"))
        for device in devices:
            out, _ = self.run_tool("fusion-run", "m.onnx", "--device=" + device, "--inputs=in.safetensors",
                                   "--expect=out.safetensors")
            self.assertEqual(out.count("PASS"), len(expected), out)

    def recur(self, op, direction="forward", steps=6, lengths=None, states=False, bias=True, peepholes=False,
              first=False,
              devices=("cpu",), activations=None, **attributes):
        random, batch, width, size = numpy.random.default_rng(len(op) + steps), 3, 4, 5
        count, gates = 2 if direction == "bidirectional" else 1, GATES[op]
        normal = lambda *shape: random.standard_normal(shape).astype(numpy.float32)
        x = normal(steps, batch, width)
        weights = {"w": normal(count, gates * size, width), "r": normal(count, gates * size, size) / 2}
        state = {name: normal(count, batch, size) for name in ("h", "c")}
        more = {"b": normal(count, 2 * gates * size), "p": normal(count, 3 * size)}
        weights.update({name: more[name] for name, given in (("b", bias), ("p", peepholes)) if given})
        named = activations or [(name, 0, 0) for name in USUAL[op]] * count
        alphas = [a for name, a, b in named if name in ("Affine", "LeakyRelu", "ThresholdedRelu",
                                                        "ScaledTanh", "HardSigmoid", "Elu")]
        betas = [b for name, a, b in named if name in ("Affine", "ScaledTanh", "HardSigmoid")]
        if activations:
            attributes["activations"] = [name for name, _, _ in named]
            attributes.update({key: values for key, values in (("activation_alpha", alphas), ("activation_beta", betas)) if values})
        y, last = [], {"h": [], "c": []}
        held = lengths or [steps] * batch
        for i in range(count):
            backwards = direction == "reverse" or i == 1
            functions = [lambda v, name=name, a=a, b=b: FUNCTIONS[name](v, a, b)
                         for name, a, b in named[i * len(USUAL[op]) : (i + 1) * len(USUAL[op])]]
            zero = numpy.zeros((batch, size))
            made, h, c = one_direction(
                op, turned(x, held) if backwards else x, weights["w"][i], weights["r"][i],
                more["b"][i] if bias else numpy.zeros(2 * gates * size), held,
                state["h"][i] if states else zero,
                state["c"][i] if states else zero, more["p"][i] if peepholes else numpy.zeros(3 * size),
                functions,
                attributes.get("clip"), attributes.get("input_forget"), attributes.get("linear_before_reset"))
            y.append(turned(made, held) if backwards else made)
            last["h"].append(h)
            last["c"].append(c)
        expected = {"y": numpy.stack(y, 1), "yh": numpy.stack(last["h"])}
        if op == "LSTM":
            expected["yc"] = numpy.stack(last["c"])
        given = {"x": x, **(state if states else {})}
        if op != "LSTM":
            given.pop("c", None)
        if first:
            given = {name: value.swapaxes(0, 1) for name, value in given.items()}
            expected = {name: value.transpose(2, 0, 1, 3) if name == "y" else value.swapaxes(0, 1)
                        for name, value in expected.items()}
            attributes["layout"] = 1
        if lengths:
            given["lengths"] = numpy.array(lengths, numpy.int32)
        dims = {"x": ["batch", "steps", width] if first else ["steps", "batch", width], "lengths": ["batch"]}
        dims.update({name: ["batch", count, size] if first else [count, "batch", size] for name in "hc"})
        inputs = [info(name, INT32 if name == "lengths" else FLOAT, dims[name]) for name in given]
        names = ["x", "w", "r", "b", "lengths", "h", "c", "p"][: 8 if op == "LSTM" else 6]
        names = [name if name in given or name in weights else "" for name in names]
        node = helper.make_node(op, names, list(expected), hidden_size=size, direction=direction,
                                **attributes)
        self.compare([node], inputs, weights, given, expected, devices)

    def test_lstm(self):
        self.recur("LSTM", "bidirectional", lengths=[6, 1, 4], states=True, peepholes=True,
                   devices=("cpu", "emulate"))
        self.recur("LSTM", "reverse", input_forget=1, clip=0.4, bias=False)
        self.recur("LSTM", "bidirectional", steps=3, first=True, states=True, activations=[
            ("HardSigmoid", 0.3, 0.4), ("LeakyRelu", 0.2, 0), ("Affine", 0.5, 0.1), ("Softsign", 0, 0),
            ("Elu", 0.7, 0),
            ("ScaledTanh", 0.8, 0.6)])

    def test_gru(self):
        self.recur("GRU", "bidirectional", lengths=[2, 6, 3], linear_before_reset=1,
                   devices=("cpu", "emulate"))
        self.recur("GRU", "reverse", states=True, bias=False, clip=0.5)
        self.recur("GRU", steps=1, first=True, states=True)
        self.recur("GRU", activations=[("HardSigmoid", 0.1, 0.4), ("ThresholdedRelu", 0.3, 0)])

    def test_rnn(self):
        self.recur("RNN", "reverse", lengths=[3, 3, 6], states=True, activations=[("Relu", 0, 0)], clip=1.5)

    def test_scan(self):
        """A state, inputs along other axes and backwards, a value from outside, an output turned about."""
        random = numpy.random.default_rng(3)
        x, y = random.standard_normal((2, 5, 3), numpy.float32), random.standard_normal((5, 2, 3),
                                                                                        numpy.float32)
        outer, s = random.standard_normal((2, 3), numpy.float32), numpy.ones((2, 3), numpy.float32)
        body = helper.make_graph(
            [helper.make_node("Mul", ["s", "a"], ["t"]), helper.make_node("Add", ["t", "b"], ["next"]),
             helper.make_node("Sub", ["next", "outer"], ["z"])],
            "body", [info(name, FLOAT, [2, 3]) for name in "sab"],
            [info("next", FLOAT, [2, 3]), info("z", FLOAT, [2, 3])])
        node = helper.make_node("Scan", ["s0", "x", "y"], ["last", "zs"], body=body, num_scan_inputs=2,
                                scan_input_axes=[1, 0],
                                scan_input_directions=[1, 0], scan_output_axes=[-1],
                                scan_output_directions=[1])
        state, zs = s, []
        for t in range(5):
            state = state * x[:, 4 - t] + y[t]
            zs.append(state - outer)
        inputs = [info("s0", FLOAT, [2, 3]), info("x", FLOAT, [2, "n", 3]), info("y", FLOAT, ["n", 2, 3]),
                  info("outer", FLOAT, [2, 3])]
        feeds = {"s0": s, "x": x, "y": y, "outer": outer}
        expected = {"last": state, "zs": numpy.stack(zs[::-1], -1)}
        self.compare([node], inputs, {}, feeds, expected,
                     ("cpu", "emulate", "emulate"))  # the last by the plan kept
        out, _ = self.run_tool("fusion-opt", "m.onnx", "--fuse", "--quiet", "--emit=plan", "--target=sm_90a")
        self.assertRegex(out, r"steps \d+ to \d+, n times:")
        self.run_tool("fusion-opt", "m.onnx", "--fuse", "--verify-fusions", "-o", "f.mlir")
        self.assertEqual(self.run_tool("fusion-opt", "f.mlir")[0], self.read("f.mlir"))

    def swapping(self, count, more):
        """a, b = b, a + b: each value of the state becomes another one. Results have the names of the body's
        inputs."""
        body = helper.make_graph(
            [helper.make_node("Add", ["a", "b"], ["sum"]),
             helper.make_node("Identity", ["b"], ["b2"])] + more,
            "body", [info("i", INT64, []), info("go", BOOL, []), info("a", FLOAT, [2]),
                     info("b", FLOAT, [2])],
            [info("more" if more else "go", BOOL, []), info("b2", FLOAT, [2]), info("sum", FLOAT, [2])])
        return helper.make_node("Loop", [count, "", "a0", "b0"], ["a", "b"], body=body)

    def test_loop(self):
        """As many steps as a dim has entries; none; as many as an input says; until the values are large."""
        a, b = numpy.array([0, 2], numpy.float32), numpy.array([1, -1], numpy.float32)
        ports = [info("a0", FLOAT, [2]), info("b0", FLOAT, [2])]

        def after(steps, a=a, b=b):
            for _ in range(steps):
                a, b = b, a + b
            return {"a": a, "b": b}

        size = [helper.make_node("Shape", ["x"], ["shape"]),
                helper.make_node("Squeeze", ["shape"], ["count"])]
        for steps in (7, 0):
            self.compare(size + [self.swapping("count", [])], ports + [info("x", FLOAT, ["n"])], {},
                         {"a0": a, "b0": b, "x": numpy.zeros(steps, numpy.float32)}, after(steps),
                         ("cpu", "emulate"))
        self.compare([self.swapping("count", [])], ports + [info("count", INT64, [])], {},
                     {"a0": a, "b0": b, "count": numpy.array(5)}, after(5))
        small = [helper.make_node("ReduceSum", ["sum"], ["total"], keepdims=0),
                 helper.make_node("Less", ["total", "limit"], ["more"])]
        self.compare([self.swapping("", small)], ports, {"limit": numpy.array(20, numpy.float32)},
                     {"a0": a, "b0": b}, after(7))
        self.refuse("fusion-opt", "m.onnx", "--fuse", "--emit=plan",
                    says="how many steps it takes depends on run-time data")

    def test_a_state_that_grows(self):
        """Its size is not taken for one that is twice itself, which is none."""
        body = helper.make_graph([helper.make_node("Identity", ["on"], ["still"]),
                                  helper.make_node("Concat", ["s", "s"], ["t"], axis=0)], "b",
                                 [info("i", INT64, []), info("on", BOOL, []), info("s", FLOAT, None)],
                                 [info("still", BOOL, []), info("t", FLOAT, None)])
        loop = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
        count = numpy_helper.from_array(numpy.array(100), "count")
        graph = helper.make_graph([loop], "g", [info("x", FLOAT, ["n"])], [info("y", FLOAT, None)], [count])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.path("m.onnx"))
        self.refuse("fusion-run", "m.onnx", "--random-inputs=n:3", says="must stay the same")

    def test_nested(self):
        """Both numbers of steps are sizes; what each outer step leaves is kept, too."""
        size = lambda x: [helper.make_node("Shape", [x], [x + "shape"]), helper.make_node("Squeeze", [x + "shape"], [x + "n"])]
        inner = self.swapping("yn", [])
        inner.input[2:], inner.output[:] = ["oa", "ob"], ["oa2", "ob2"]
        body = helper.make_graph(
            [inner, helper.make_node("Add", ["oa2", "ob2"], ["oab"]), helper.make_node("Identity", ["ogo"], ["ogo2"])], "outer",
            [info("oi", INT64, []), info("ogo", BOOL, []), info("oa", FLOAT, [2]), info("ob", FLOAT, [2])],
            [info("ogo2", BOOL, []), info("oa2", FLOAT, [2]), info("ob2", FLOAT, [2]), info("oab", FLOAT, [2])])
        outer = helper.make_node("Loop", ["xn", "", "a0", "b0"], ["a", "b", "all"], body=body)
        ports = [info("a0", FLOAT, [2]), info("b0", FLOAT, [2]), info("x", FLOAT, ["n"]), info("y", FLOAT, ["m"])]
        for n, m in ((3, 4), (0, 2), (2, 0), (1, 1)):
            a, b = numpy.array([0, 2], numpy.float32), numpy.array([1, -1], numpy.float32)
            given, sums = {"a0": a, "b0": b, "x": numpy.zeros(n, numpy.float32), "y": numpy.zeros(m, numpy.float32)}, []
            for _ in range(n):
                for _ in range(m):
                    a, b = b, a + b
                sums.append(a + b)
            expected = {"a": a, "b": b, "all": numpy.array(sums, numpy.float32).reshape(n, 2)}
            self.compare(size("x") + size("y") + [outer], ports, {}, given, expected, ("cpu", "emulate"))


if __name__ == "__main__":
    unittest.main()
