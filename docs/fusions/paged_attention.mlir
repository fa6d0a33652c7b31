// fusion-opt paged_attention.mlir --fuse --profit=model --require=paged_attention=1
func.func @paged_attention(%q: tensor<?x32x1x128xbf16> {nn.name = "q", nn.dims = ["tokens", 32, 1, 128]},
                           %key_cache: tensor<?x16x8x128xbf16> {nn.name = "key_cache", nn.dims = ["pages", 16, 8, 128]},
                           %value_cache: tensor<?x16x8x128xbf16> {nn.name = "value_cache", nn.dims = ["pages", 16, 8, 128]},
                           %block_table: tensor<?x?xi32> {nn.name = "block_table", nn.dims = ["sequences", "most"]},
                           %sequence: tensor<?xi64> {nn.name = "sequence", nn.dims = ["tokens"]},
                           %positions: tensor<?x1x1x1xi64> {nn.name = "positions", nn.dims = ["tokens", 1, 1, 1]})
    -> (tensor<?x32x1x128xbf16> {nn.name = "y"}) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %table = nn.gather %block_table, %sequence {axis = 0 : i64} : (tensor<?x?xi32>, tensor<?xi64>) -> tensor<?x?xi32>
  %kg = nn.gather %key_cache, %table {axis = 0 : i64} : (tensor<?x16x8x128xbf16>, tensor<?x?xi32>) -> tensor<?x?x16x8x128xbf16>
  %kr = nn.reshape %kg {shape = ["tokens", "16*most", 8, 128]} : (tensor<?x?x16x8x128xbf16>) -> tensor<?x?x8x128xbf16>
  %k = nn.transpose %kr {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x8x128xbf16>) -> tensor<?x8x?x128xbf16>
  %vg = nn.gather %value_cache, %table {axis = 0 : i64} : (tensor<?x16x8x128xbf16>, tensor<?x?xi32>) -> tensor<?x?x16x8x128xbf16>
  %vr = nn.reshape %vg {shape = ["tokens", "16*most", 8, 128]} : (tensor<?x?x16x8x128xbf16>) -> tensor<?x?x8x128xbf16>
  %v = nn.transpose %vr {perm = array<i64: 0, 2, 1, 3>} : (tensor<?x?x8x128xbf16>) -> tensor<?x8x?x128xbf16>
  %n = nn.iota %zero, %one {size = ["16*most"]} : (tensor<i64>, tensor<i64>) -> tensor<?xi64>
  %mask = nn.less_equal %n, %positions : (tensor<?xi64>, tensor<?x1x1x1xi64>) -> tensor<?x1x1x?xi1>
  %y = nn.attention %q, %k, %v, %mask {scale = 0.0883883461 : f32, zero_masked_rows = true}
      : (tensor<?x32x1x128xbf16>, tensor<?x8x?x128xbf16>, tensor<?x8x?x128xbf16>, tensor<?x1x1x?xi1>) -> tensor<?x32x1x128xbf16>
  return %y : tensor<?x32x1x128xbf16>
}
