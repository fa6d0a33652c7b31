"""Node tests of pictures: regions, pools, channels that lie last. Numbers of ONNX Runtime where its CPU
provider has the op, else by numpy or by ONNX's reference."""
import numpy as np
from onnx import helper

from nodes import MICROSOFT, write
from plain import contrib, f16, f32, i64, op, own, reference, scale, u8


def regions():
    boxes = np.array([[0, 0, 7, 5], [1.3, 0.4, 6.2, 4.9], [-2, -1, 3, 3], [5, 4, 12, 9]], np.float32)
    inputs = {"x": f32(2, 3, 6, 8), "boxes": boxes, "batch": i64(0, 1, 1, 0)}
    for mode in ("avg", "max"):
        for coordinates in ("half_pixel", "output_half_pixel"):
            op(f"roi_align_{mode}_{coordinates}",
               "RoiAlign",
               inputs,
               mode=mode,
               output_height=3,
               output_width=2,
               sampling_ratio=2,
               spatial_scale=0.75,
               coordinate_transformation_mode=coordinates)
    numbered = np.concatenate([np.array([[0], [1], [1], [0]], np.float32), boxes], 1)
    op("max_roi_pool",
       "MaxRoiPool", {
           "x": inputs["x"],
           "boxes": numbered
       },
       pooled_shape=[3, 2],
       spatial_scale=0.75)
    for mode in ("bilinear", "nearest"):
        contrib(f"crop_and_resize_{mode}",
                "CropAndResize", {
                    "x": inputs["x"],
                    "boxes": np.array([[0, 0, 1, 1], [0.2, 0.1, 1.3, 0.8], [0.9, 0.9, 0.1, 0.2]], np.float32),
                    "batch": np.array([0, 1, 1], np.int32),
                    "size": np.array([4, 3], np.int32)
                },
                weights=("size", ),
                mode=mode,
                extrapolation_value=2.5)
    deformed = {
        "x": f32(2, 4, 6, 5),
        "w": f32(6, 2, 3, 2),
        "offset": f32(2, 24, 3, 4) * 2,
        "b": f32(6),
        "mask": own.uniform(0, 1, (2, 12, 3, 4)).astype(np.float32)
    }
    form = {"group": 2, "offset_group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]}
    op("deform_conv_groups", "DeformConv", deformed, opset=22, **form)
    halves = {key: value.astype(np.float16) for key, value in deformed.items()}
    rounded = reference("DeformConv", {
        key: value.astype(np.float32)
        for key, value in halves.items()
    }, 22, **form)
    op("deform_conv_f16", "DeformConv", halves, results=[rounded[0].astype(np.float16)], opset=22, **form)


def pools():
    codes = own.integers(0, 3, (2, 2, 5, 6)).astype(np.uint8)  # with ties, and zeros next to the padding
    padded = {"kernel_shape": [3, 2], "pads": [2, 1, 1, 1], "strides": [2, 1]}
    for order in (0, 1):
        op(f"max_pool_places_{order}",
           "MaxPool", {"x": codes}, ("y", "places"),
           storage_order=order,
           **padded)
    op("max_pool_i8",
       "MaxPool", {"x": own.integers(-128, 128, (1, 2, 7)).astype(np.int8)}, ("y", "places"),
       kernel_shape=[3],
       dilations=[2],
       pads=[1, 2])
    op("max_pool_places_3d",
       "MaxPool", {"x": f32(1, 2, 4, 5, 3)}, ("y", "places"),
       kernel_shape=[2, 3, 2],
       strides=[1, 2, 1],
       storage_order=1)
    x = f32(1, 2, 4, 6)
    both = [
        helper.make_node("MaxPool", ["x"], ["small", "places"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("MaxUnpool", ["small", "places"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    ]
    write("max_pool_unpool", both, {"x": x}, ["y"])
    codes = {
        "x": u8(1, 3, 5, 6),
        "xs": scale(0.0317),
        "xz": np.array(120, np.uint8),
        "ys": scale(0.0213),
        "yz": np.array(99, np.uint8)
    }
    contrib("qlinear_average_pool",
            "QLinearAveragePool",
            codes,
            kernel_shape=[3, 2],
            pads=[1, 1, 1, 0],
            strides=[2, 1])
    contrib("qlinear_average_pool_last",
            "QLinearAveragePool",
            codes,
            kernel_shape=[2, 2],
            channels_last=1,
            count_include_pad=1,
            pads=[1, 0, 0, 1])
    contrib("qlinear_global_average_pool", "QLinearGlobalAveragePool", codes)
    contrib("qlinear_global_average_pool_last", "QLinearGlobalAveragePool", codes, channels_last=1)
    contrib("nhwc_max_pool",
            "NhwcMaxPool", {"x": u8(1, 5, 6, 3)},
            kernel_shape=[3, 2],
            pads=[1, 1, 1, 0],
            strides=[2, 1])


def grouped(x, gamma, beta, groups, eps, activates):
    """Channels last."""
    parts = x.astype(np.float64).reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean, variance = parts.mean((1, 3), keepdims=True), parts.var((1, 3), keepdims=True)
    y = ((parts - mean) / np.sqrt(variance + eps)).reshape(x.shape) * gamma + beta
    return y / (1 + np.exp(-y)) if activates else y


def channels():
    x, gamma, beta = f32(2, 3, 4, 8), f32(8), f32(8)
    form = {"groups": 4, "epsilon": 1e-5}
    contrib("group_norm",
            "GroupNorm", {
                "x": x,
                "gamma": gamma,
                "beta": beta
            },
            activation=1,
            **form,
            results=[grouped(x, gamma, beta, 4, 1e-5, True).astype(np.float32)])
    contrib("group_norm_channels_first",
            "GroupNorm", {
                "x": x.transpose(0, 3, 1, 2),
                "gamma": gamma,
                "beta": beta
            },
            activation=0,
            channels_last=0,
            results=[grouped(x, gamma, beta, 4, 1e-5, False).transpose(0, 3, 1, 2).astype(np.float32)],
            **form)
    x, skip, bias = f16(2, 3, 4, 8), f16(2, 8), f16(8)
    total = x + skip[:, None, None] + bias
    op("skip_group_norm_f16",
       "SkipGroupNorm", {
           "x": x,
           "gamma": gamma,
           "beta": beta,
           "skip": skip,
           "bias": bias
       }, ("y", "sum"),
       domain=MICROSOFT,
       activation=1,
       **form,
       results=[grouped(total, gamma, beta, 4, 1e-5, True).astype(np.float16), total])
    x, w, b = f32(1, 4, 6, 5), f32(6, 2, 3, 3), f32(6)
    form = {"group": 2, "pads": [1, 0, 1, 2], "strides": [1, 2]}
    y = reference("Conv", {"x": x, "w": w, "b": b}, 17, **form)[0]
    last, z = y.transpose(0, 2, 3, 1), f32(*y.transpose(0, 2, 3, 1).shape)
    inputs = {"x": x.transpose(0, 2, 3, 1), "w": w, "b": b}
    contrib("nhwc_conv", "NhwcConv", inputs, [last], weights=("w", "b"), **form)
    contrib("nhwc_fused_conv",
            "NhwcFusedConv",
            inputs | {"z": z}, [np.maximum(last + z, 0)],
            weights=("w", "b"),
            activation="Relu",
            **form)
    codes = {
        "x": u8(1, 5, 6, 4),
        "xs": scale(0.02),
        "xz": np.array(120, np.uint8),
        "w": own.integers(-127, 128, (6, 2, 3, 3)).astype(np.int8),
        "ws": scale(0.01),
        "wz": np.array(0, np.int8),
        "ys": scale(0.5),
        "yz": np.array(99, np.uint8)
    }
    contrib("qlinear_conv_last", "QLinearConv", codes, weights=("w", "ws", "wz"), channels_last=1, group=2)


def pictures():
    regions()
    pools()
    channels()
