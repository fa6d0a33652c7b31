"""Node tests of ops that are compositions: numbers of ONNX Runtime where its CPU provider has the op, else by
numpy or by ONNX's reference."""
import numpy as np
import onnx
from onnx import helper

from nodes import MICROSOFT
from plain import contrib, f16, f32, i64, op, own, reference, u8


def col2im(columns, image, block, strides, dilations, pads):
    """Two dims, block by block."""
    sizes = [(image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
             for i in (0, 1)]
    batch, channels = columns.shape[0], columns.shape[1] // (block[0] * block[1])
    out = np.zeros((batch, channels, image[0] + pads[0] + pads[2], image[1] + pads[1] + pads[3]), np.float64)
    parts = columns.reshape(batch, channels, *block, *sizes)
    for i, j in np.ndindex(*block):
        for row, column in np.ndindex(*sizes):
            out[:, :, row * strides[0] + i * dilations[0],
                column * strides[1] + j * dilations[1]] += parts[:, :, i, j, row, column]
    return out[:, :, pads[0]:pads[0] + image[0], pads[1]:pads[1] + image[1]]


def matrices():
    x = f32(2, 3, 5, 5)
    x[0, 0, 0, 0] = 0  # the first pivot is another row's
    x[1, 1, 3] = x[1, 1, 2]  # singular
    op("det_pivots",
       "Det", {"x": x},
       results=[np.linalg.det(x.astype(np.float64)).astype(np.float32)],
       opset=22)
    op("det_one", "Det", {"x": f32(3, 1, 1)}, opset=22)
    x = f32(2, 4, 4)
    x[0, 0, 0] = 0
    contrib("inverse", "Inverse", {"x": x}, results=[np.linalg.inv(x.astype(np.float64)).astype(np.float32)])
    theta, size = f16(2, 2, 3), i64(2, 3, 4, 5)
    wide = reference("AffineGrid", {"theta": theta.astype(np.float32), "size": size}, 20, align_corners=1)
    op("affine_grid_f16",
       "AffineGrid", {
           "theta": theta,
           "size": size
       },
       results=[wide[0].astype(np.float16)],
       weights=("size", ),
       opset=20,
       align_corners=1)
    form = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 1]}
    image, block = [6, 7], [3, 2]
    columns = f32(2, 2 * 6, 4 * 6)
    op("col2im_all",
       "Col2Im", {
           "x": columns,
           "image": i64(image),
           "block": i64(block)
       },
       weights=("image", "block"),
       results=[
           col2im(columns, image, block, form["strides"], form["dilations"], form["pads"]).astype(np.float32)
       ],
       opset=18,
       **form)
    x = own.uniform(0.5, 1.5, (3, 11)).astype(np.float16)
    op("cumprod_f16",
       "CumProd", {
           "x": x,
           "axis": i64(1)
       },
       weights=("axis", ),
       opset=26,
       reverse=1,
       results=[np.cumprod(x.astype(np.float64)[:, ::-1], 1)[:, ::-1].astype(np.float16)])
    x = own.integers(-2, 3, (5, 2)).astype(np.int64)
    op("cumprod_symbol",
       "CumProd", {
           "x": x,
           "axis": i64(0)
       },
       weights=("axis", ),
       opset=26,
       exclusive=1,
       dims={"x": ["rows", 2]},
       results=[np.concatenate([np.ones((1, 2), np.int64), np.cumprod(x, 0)[:-1]])])
    x, y = f32(3, 4, 3, 2), f32(3, 4)
    for number, equation in enumerate(("ijik->ikj", "ijik", "ijik,ij->jk", "i...ik->...k", "ijik->")):
        tensors = {"x": x, "z": y} if "," in equation else {"x": x}
        op(f"einsum_diagonal_{number}",
           "Einsum",
           tensors,
           equation=equation,
           results=[np.asarray(np.einsum(equation, *tensors.values()), np.float32)])
    x = f32(2, 4, 4)
    op("einsum_diagonal_symbol",
       "Einsum", {"x": x},
       equation="bii->b",
       dims={"x": ["b", "n", "n"]},
       results=[np.einsum("bii->b", x)])


def signals():
    x = f32(1, 2, 5, 6)
    roi = np.array([0.1, -0.2, 0.9, 1.1], np.float32)
    for mode in ("linear", "nearest"):
        op(f"resize_crop_{mode}",
           "Resize", {
               "x": x,
               "roi": np.concatenate([[0, 0], roi[:2], [1, 1], roi[2:]]).astype(np.float32),
               "scales": None,
               "sizes": i64(1, 2, 4, 7)
           },
           weights=("roi", "sizes"),
           coordinate_transformation_mode="tf_crop_and_resize",
           extrapolation_value=3.0,
           mode=mode)
    op("resize_crop_symbol",
       "Resize", {
           "x": x,
           "roi": roi,
           "scales": None,
           "sizes": i64(4, 1)
       },
       weights=("roi", "sizes"),
       opset=18,
       axes=[2, 3],
       dims={"x": ["batch", 2, 5, 6]},
       coordinate_transformation_mode="tf_crop_and_resize",
       mode="linear")
    x = f32(2, 3, 8)
    spectrum = np.fft.rfft(x.astype(np.float64))
    pairs = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
    contrib("rfft", "Rfft", {"x": x}, [pairs], signal_ndim=1, normalized=0, onesided=1)
    contrib("irfft", "Irfft", {"x": pairs}, [x], signal_ndim=1, normalized=0, onesided=1)
    a, b = f32(3, 4, 2), f32(3, 4, 2)
    left, right = a[..., 0] + 1j * a[..., 1], b[..., 0] + 1j * b[..., 1]
    for kind, y in (("ComplexMul", left * right), ("ComplexMulConj", left * np.conj(right))):
        contrib(kind.lower(), kind, {"a": a, "b": b}, [np.stack([y.real, y.imag], -1).astype(np.float32)])


def scans():
    """Opset 8 has a batch in front, and lengths of the sequences that may be left out."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "next"], ["total"]),
            helper.make_node("Mul", ["total", "next"], ["product"])
        ], "body",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("sum", "next")],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("total", "product")])
    for batch, backwards in ((1, 0), (3, 1)):
        initial, x = f32(batch, 2), f32(batch, 4, 2)
        steps = x[:, ::-1] if backwards else x
        totals = initial[:, None] + np.cumsum(steps, 1, dtype=np.float32)
        op(f"scan8_batch_{batch}",
           "Scan", {
               "lengths": None,
               "initial": initial,
               "x": x
           }, ("last", "products"),
           opset=8,
           body=body,
           num_scan_inputs=1,
           directions=[backwards],
           results=[totals[:, -1], totals * steps])


def products():
    for kind, name in enumerate(("fp4", "nf4")):
        contrib(f"bnb4_{name}",
                "MatMulBnb4", {
                    "x": f32(2, 3, 32),
                    "w": u8(6 * 32 // 2),
                    "absmax": own.uniform(0.1, 1, 12).astype(np.float32)
                },
                weights=("w", "absmax"),
                N=6,
                K=32,
                block_size=16,
                quant_type=kind)
    contrib("cdist", "CDist", {"a": f32(4, 3), "b": f32(5, 3)}, metric="euclidean")
    contrib("expand_dims", "ExpandDims", {"x": f32(2, 3), "axis": np.array(-1, np.int32)}, weights=("axis", ))
    a, b = own.integers(-128, 128, (3, 4)).astype(np.int8), own.integers(-128, 128, 4).astype(np.int8)
    contrib("mul_integer", "MulInteger", {
        "a": a,
        "az": np.array(3, np.int8),
        "b": b,
        "bz": None
    }, [(a.astype(np.int32) - 3) * b])
    a, b = own.integers(-3000, 3000, (2, 3)).astype(np.int16), own.integers(-3000, 3000,
                                                                            (3, 4)).astype(np.int16)
    contrib("matmul_integer16", "MatMulInteger16", {
        "a": a,
        "b": b
    }, [a.astype(np.int32) @ b.astype(np.int32)])
    x = u8(2, 3, 4)
    contrib("reduce_sum_integer",
            "ReduceSumInteger", {"x": x}, [x.astype(np.uint32).sum(1, keepdims=True).astype(np.int32)],
            axes=[1],
            keepdims=1)


def casts_of_bits():
    """Values of many 16 bits; a NaN of 16 bits may become another."""
    x = np.arange(1 << 16, dtype=np.uint16)
    x = x[np.isfinite(x.view(np.float16))][::31]
    op("bitcast_u16_f16",
       "BitCast", {"x": x},
       results=[x.view(np.float16)],
       opset=26,
       to=onnx.TensorProto.FLOAT16)
    op("bitcast_f16_i16",
       "BitCast", {"x": x.view(np.float16)},
       results=[x.view(np.int16)],
       opset=26,
       to=onnx.TensorProto.INT16)
    x = own.integers(-2**63, 2**63, (3, 40)).astype(np.int64)
    op("bitcast_f64_u64",
       "BitCast", {"x": x.view(np.float64)},
       results=[x.view(np.uint64)],
       opset=26,
       to=onnx.TensorProto.UINT64)
    op("bitcast_i64_f64",
       "BitCast", {"x": x},
       results=[x.view(np.float64)],
       opset=26,
       to=onnx.TensorProto.DOUBLE)
    x = np.append(x.view(np.int32).ravel(), np.array([-1, -2**31, 0x7f800000, 0x7fc00001], np.int32))
    op("bitcast_i32_f32",
       "BitCast", {"x": x},
       results=[x.view(np.float32)],
       opset=26,
       to=onnx.TensorProto.FLOAT)
    op("bitcast_f32_u32",
       "BitCast", {"x": x.view(np.float32)},
       results=[x.view(np.uint32)],
       opset=26,
       to=onnx.TensorProto.UINT32)
    op("bitcast_i8_u8",
       "BitCast", {"x": x.view(np.int8)},
       results=[x.view(np.uint8)],
       opset=26,
       to=onnx.TensorProto.UINT8)
    table = f32(5, 3)
    contrib("torch_embedding", "TorchEmbedding", {"x": table, "at": i64(4, 0, 1)[None]}, [table[[[4, 0, 1]]]])


def sums():
    x, bias = f32(2, 3, 4, 5), f32(2, 1, 1, 5)
    total = np.exp((x + bias).astype(np.float64))
    contrib("bias_softmax",
            "BiasSoftmax", {
                "x": x,
                "bias": bias
            }, [(total / total.sum(-1, keepdims=True)).astype(np.float32)],
            axis=3,
            is_inner_broadcast=1)
    contrib("bias_softmax_flat",
            "BiasSoftmax", {
                "x": x,
                "bias": bias
            }, [(total / total.sum((2, 3), keepdims=True)).astype(np.float32)],
            axis=2,
            is_inner_broadcast=1)
    bias, rest = f32(5), f32(2, 3, 4, 5)
    op("bias_dropout",
       "BiasDropout", {
           "x": x,
           "bias": bias,
           "rest": rest
       }, ("y", "mask"),
       domain=MICROSOFT,
       results=[x + bias + rest, np.ones(x.shape, bool)])
    contrib("bitmask_dropout", "BitmaskDropout", {"x": x}, [x])
    angles, q, turned_q, k, turned_k = f32(2, 3, 8), *(f16(2, 4, 3, 8) for _ in range(4))
    cos, sin = (table(angles)[:, None].astype(np.float16) for table in (np.cos, np.sin))
    op("gemma_rotary",
       "GemmaRotaryEmbedding", {
           "angles": angles,
           "q": q,
           "tq": turned_q,
           "k": k,
           "tk": turned_k
       }, ("y", "z"),
       domain=MICROSOFT,
       results=[q * cos + turned_q * sin, k * cos + turned_k * sin])
    odd = f32(3, 4)
    odd[1, 2] = np.inf
    for name, form in (("any", {}), ("nan", {"isnan_only": 1})):
        contrib(f"is_all_finite_{name}", "IsAllFinite", {
            "x": f32(2),
            "odd": odd
        }, [np.array(bool(form))], **form)
    x = f32(2, 7, 3)
    contrib("unfold_tensor",
            "UnfoldTensor", {"x": x}, [np.stack([x[:, i:i + 3].transpose(0, 2, 1) for i in (0, 2, 4)], 1)],
            dim=1,
            size=3,
            step=2)


def more_ops():
    for cases in (matrices, signals, scans, products, sums, casts_of_bits):
        cases()
