// fusion-opt bounded_attention.mlir --fuse --profit=model --require=bounded_attention=1
func.func @bounded_attention(%q: tensor<?x32x1x128xbf16> {nn.name = "q", nn.dims = ["batch", 32, 1, 128]},
                             %keys: tensor<?x8x4096x128xbf16> {nn.name = "keys", nn.dims = ["batch", 8, 4096, 128]},
                             %values: tensor<?x8x4096x128xbf16> {nn.name = "values", nn.dims = ["batch", 8, 4096, 128]},
                             %positions: tensor<?x1x1x1xi64> {nn.name = "positions", nn.dims = ["batch", 1, 1, 1]})
    -> (tensor<?x32x1x128xbf16> {nn.name = "y"}) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %n = nn.iota %zero, %one {size = [4096]} : (tensor<i64>, tensor<i64>) -> tensor<4096xi64>
  %mask = nn.less_equal %n, %positions : (tensor<4096xi64>, tensor<?x1x1x1xi64>) -> tensor<?x1x1x4096xi1>
  %y = nn.attention %q, %keys, %values, %mask {scale = 0.0883883461 : f32, zero_masked_rows = true}
      : (tensor<?x32x1x128xbf16>, tensor<?x8x4096x128xbf16>, tensor<?x8x4096x128xbf16>, tensor<?x1x1x4096xi1>) -> tensor<?x32x1x128xbf16>
  return %y : tensor<?x32x1x128xbf16>
}
