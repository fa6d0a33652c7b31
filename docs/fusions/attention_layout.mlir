// fusion-opt attention_layout.mlir --fuse --profit=model --require=attention_layout=1
func.func @attention_layout(%q: tensor<1x32x?x128xbf16> {nn.name = "q", nn.dims = [1, 32, "seq", 128]},
                            %k: tensor<1x8x?x128xbf16> {nn.name = "k", nn.dims = [1, 8, "seq", 128]},
                            %v: tensor<1x8x?x128xbf16> {nn.name = "v", nn.dims = [1, 8, "seq", 128]})
    -> (tensor<1x?x4096xbf16> {nn.name = "y"}) {
  %attended = nn.attention %q, %k, %v {scale = 0.088388 : f32}
      : (tensor<1x32x?x128xbf16>, tensor<1x8x?x128xbf16>, tensor<1x8x?x128xbf16>) -> tensor<1x32x?x128xbf16>
  %heads = nn.transpose %attended {perm = array<i64: 0, 2, 1, 3>}
      : (tensor<1x32x?x128xbf16>) -> tensor<1x?x32x128xbf16>
  %y = nn.reshape %heads {shape = [1, "seq", 4096]} : (tensor<1x?x32x128xbf16>) -> tensor<1x?x4096xbf16>
  return %y : tensor<1x?x4096xbf16>
}
