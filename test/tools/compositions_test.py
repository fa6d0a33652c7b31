"""The node tests of ops that are compositions of others, on emulated kernels: each has a plan for devices."""
import os
import pathlib
import unittest

from harness import ToolTest

try:
    import numpy
    import onnx
    from onnx import numpy_helper
    from safetensors.numpy import save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77)

FOLDER = pathlib.Path(os.environ["FUSION_SOURCE"]) / "test/import/contrib"
# The cases of pictures.py, more_ops.py, sparse.py, coded_weights.py, hyper.py, sequences.py,
# routers.py, static_cache.py and data_rows.py.
CASES = ("affine_", "as_tensors_", "bias_dropout", "bias_softmax", "bitcast_", "bitmask_", "bnb4_",
         "branchwise_", "cdist", "col2im_", "complexmul", "crop_and_", "cumprod_", "data_rows_", "deform_",
         "det_", "einsum_", "engram_", "expand_dims", "gemma_", "group_norm", "inverse", "irfft", "is_all_finite_",
         "limited_router_", "list_", "low_rank_", "matmul_integer16", "nbits_mlp", "nbits_qkv", "max_pool_", "max_roi_",
         "mul_integer", "nhwc_", "post_mix", "pre_mix", "qlinear_average", "quantised_lstm",
         "torch_embedding", "qlinear_conv_last", "qlinear_global", "reduce_sum_integer", "resize_crop_",
         "rfft", "roi_align_", "router_gate_up", "scan8_", "skip_group_", "sparse_attention_", "static_cache_",
         "unfold_")

# Inputs of ONNX's tests of sequences that say how long sequences are.
KNOWN = {"cond", "position", "split", "trip_count"}


class Compositions(ToolTest):

    def tensors(self, folder, kind, infos):
        made = {}
        for index, info in enumerate(infos):
            data = (folder / f"test_data_set_0/{kind}_{index}.pb").read_bytes()
            made[info.name] = numpy.array(numpy_helper.to_array(onnx.TensorProto.FromString(data)), order="C")
        return made

    def test_emulated(self):
        folders = sorted(path for path in FOLDER.iterdir()
                         if path.name.startswith(tuple("test_" + case for case in CASES)))
        self.assertGreater(len(folders), 80)
        for folder in folders:
            with self.subTest(folder.name):
                model = onnx.load(folder / "model.onnx").graph
                inputs = self.tensors(folder, "input", model.input)
                constants = []
                for name in KNOWN & inputs.keys():
                    values = numpy.atleast_1d(inputs.pop(name)).tolist()
                    constants.append(f"--constant={name}=" + ",".join(str(int(value)) for value in values))
                save_file(inputs, self.path("i.safetensors"))
                expected = self.tensors(folder, "output", model.output)
                save_file(expected, self.path("o.safetensors"))
                out, _ = self.run_tool("fusion-run", str(folder / "model.onnx"), "--device=emulate",
                                       "--inputs=i.safetensors", "--expect=o.safetensors", "--quiet",
                                       *constants)
                self.assertEqual(out.count("PASS"), len(expected), out)


if __name__ == "__main__":
    unittest.main()
