"""Graphs of many nodes, inputs and parts: time and memory that grow with the graph, and no recursion by its
depth."""
import os
import resource
import subprocess
import sys
import unittest

from harness import ToolTest

seconds, megabytes, stack_kilobytes = 20, 400, 1024


def model(path, nodes, inputs, outputs):
    from onnx import TensorProto, helper, save

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    proto = helper.make_model(helper.make_graph(nodes, "g", ports, results),
                              opset_imports=[helper.make_opsetid("", 20)])
    proto.ir_version = 9
    save(proto, path)


class Size(ToolTest):
    def measure(self, nodes, inputs, outputs,
                command=("fusion-opt", "g.onnx", "--fuse", "--emit=plan", "-o", "plan.txt", "--quiet")):
        model(self.path("g.onnx"), nodes, inputs, outputs)

        def small_stack():
            resource.setrlimit(resource.RLIMIT_STACK, (stack_kilobytes << 10, stack_kilobytes << 10))

        process = self.start(*command, stdout=subprocess.DEVNULL, preexec_fn=small_stack)
        with process.stderr:
            said = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, said)
        print(f"{self.id()}: {usage.ru_utime + usage.ru_stime:.2f} s of CPU, {usage.ru_maxrss >> 10} MB",
              file=sys.stderr)
        self.assertLess(usage.ru_maxrss >> 10, megabytes)
        self.assertLess(usage.ru_utime + usage.ru_stime, seconds)

    def chain(self, count, make, inputs):
        from onnx import helper

        before, nodes = "x", []
        for i in range(count):
            kind, others, attributes = make(i)
            nodes.append(helper.make_node(kind, [before, *others], [f"t{i}"], **attributes))
            before = f"t{i}"
        self.measure(nodes, inputs, [before])

    def test_a_long_chain(self):
        kinds = ("Relu", "Exp", "Abs", "Neg")
        self.chain(6000, lambda i: (kinds[i % 4], [], {}), [("x", [3, 5])])

    def test_a_long_chain_of_fusions(self):
        kinds = (("MatMul", ["w"]), ("Add", ["b"]), ("Relu", []))
        self.chain(20000, lambda i: (*kinds[i % 3], {}), [("x", ["n", 5]), ("w", [5, 5]), ("b", [5])])

    def test_transposes(self):
        self.chain(6000, lambda i: ("Transpose", [], {"perm": [1, 0]}), [("x", [3, 5])])

    def test_concats(self):
        self.chain(3000, lambda i: ("Concat", ["y"], {"axis": 0}), [("x", [2, 3]), ("y", [1, 3])])

    def test_many_inputs(self):
        self.chain(3000, lambda i: ("Add", [f"y{i}"], {}),
                   [("x", [2, 3]), *((f"y{i}", [2, 3]) for i in range(3000))])

    def test_many_parts(self):
        from onnx import helper

        self.measure([helper.make_node("Concat", ["x"] * 4000, ["y"], axis=0)], [("x", [2, 3])], ["y"])

    def many_symbols(self, count, **options):
        from onnx import helper

        nodes = [helper.make_node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(count)]
        self.measure(nodes, [(f"x{i}", [f"s{i}"]) for i in range(count)], [f"y{i}" for i in range(count)],
                     **options)

    def test_many_symbols(self):
        self.many_symbols(1000)

    def test_a_run_with_many_symbols(self):
        self.many_symbols(20000, command=("fusion-run", "g.onnx", "--random-inputs", "--device=cpu", "--quiet",
                                          "--outputs=o.safetensors"))


if __name__ == "__main__":
    try:
        import onnx  # noqa: F401
    except ImportError:
        sys.exit(77)
    unittest.main()
