// A mean of f32 that are rounded to bf16 first: where large ones cancel, the order of the sum decides. That is
// seen only where the inputs move by what a rounding does not take back.
// RUN: fusion-fuzz %s --seed=130029 --device=emulate
func.func @main(%v0: tensor<?x?x8xf32> {nn.dims = ["b", "s", 8], nn.name = "v0"},
    %v19: tensor<24xbf16> {nn.dims = [24], nn.name = "v19"},
    %v26: tensor<?x?x24xbf16> {nn.dims = ["b", "s + 3", 24], nn.name = "v26"},
    %v27: tensor<?x?x24xbf16> {nn.dims = ["b", "s", 24], nn.name = "v27"})
    -> (tensor<?x?x1xbf16>, tensor<?x?x24xbf16>) {
  %v1 = nn.cast %v0 : (tensor<?x?x8xf32>) -> (tensor<?x?x8xbf16>)
  %v2 = nn.reduce %v1 {kind = "mean", axes = array<i64: -1>, keepdims = true} : (tensor<?x?x8xbf16>) -> (tensor<?x?x1xbf16>)
  %v18 = nn.slice %v26 {starts = [0, 3, 0], sizes = ["b", "s", 24], steps = array<i64: 1, 1, 1>} : (tensor<?x?x24xbf16>) -> (tensor<?x?x24xbf16>)
  %v20 = nn.mul %v18, %v19 : (tensor<?x?x24xbf16>, tensor<24xbf16>) -> (tensor<?x?x24xbf16>)
  %v21 = nn.add %v27, %v20 : (tensor<?x?x24xbf16>, tensor<?x?x24xbf16>) -> (tensor<?x?x24xbf16>)
  %v23 = nn.silu %v21 : (tensor<?x?x24xbf16>) -> (tensor<?x?x24xbf16>)
  return %v2, %v23 : tensor<?x?x1xbf16>, tensor<?x?x24xbf16>
}
