// fusion-opt sink_attention.mlir --fuse --profit=model --require=sink_attention=1
func.func @sink_attention(%q: tensor<?x64x1x64xbf16> {nn.name = "q", nn.dims = ["batch", 64, 1, 64]},
                          %keys: tensor<?x8x?x64xbf16> {nn.name = "keys", nn.dims = ["batch", 8, "length", 64]},
                          %values: tensor<?x8x?x64xbf16> {nn.name = "values", nn.dims = ["batch", 8, "length", 64]},
                          %sinks: tensor<1x64x1x1xf32> {nn.name = "sinks", nn.dims = [1, 64, 1, 1]})
    -> (tensor<?x64x1x64xbf16> {nn.name = "y"}) {
  %zero = nn.constant {value = dense<0.0> : tensor<bf16>} : () -> tensor<bf16>
  %none = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %k = nn.pad %keys, %zero {low = [0, 0, 1, 0], high = [0, 0, 0, 0]} : (tensor<?x8x?x64xbf16>, tensor<bf16>) -> tensor<?x8x?x64xbf16>
  %v = nn.pad %values, %zero {low = [0, 0, 1, 0], high = [0, 0, 0, 0]} : (tensor<?x8x?x64xbf16>, tensor<bf16>) -> tensor<?x8x?x64xbf16>
  %zeros = nn.expand %none {shape = [1, 64, 1, "length"]} : (tensor<f32>) -> tensor<1x64x1x?xf32>
  %scores = nn.concat %sinks, %zeros {axis = 3 : i64} : (tensor<1x64x1x1xf32>, tensor<1x64x1x?xf32>) -> tensor<1x64x1x?xf32>
  %y = nn.attention %q, %k, %v, %scores {scale = 0.125 : f32}
      : (tensor<?x64x1x64xbf16>, tensor<?x8x?x64xbf16>, tensor<?x8x?x64xbf16>, tensor<1x64x1x?xf32>) -> tensor<?x64x1x64xbf16>
  return %y : tensor<?x64x1x64xbf16>
}
