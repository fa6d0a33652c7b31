// fusion-opt scaled_attention.mlir --fuse --profit=model --require=scaled_attention=1
func.func @scaled_attention(%q: tensor<?x32x1x128xbf16> {nn.name = "q", nn.dims = ["batch", 32, 1, 128]},
                            %keys: tensor<?x8x?x128xf8E4M3FN> {nn.name = "keys", nn.dims = ["batch", 8, "past", 128]},
                            %values: tensor<?x8x?x128xf8E4M3FN> {nn.name = "values", nn.dims = ["batch", 8, "past", 128]},
                            %scale_k: tensor<f32> {nn.name = "scale_k"}, %scale_v: tensor<f32> {nn.name = "scale_v"})
    -> (tensor<?x32x1x128xbf16> {nn.name = "y"}) {
  %k = nn.dequantize %keys, %scale_k : (tensor<?x8x?x128xf8E4M3FN>, tensor<f32>) -> tensor<?x8x?x128xbf16>
  %v = nn.dequantize %values, %scale_v : (tensor<?x8x?x128xf8E4M3FN>, tensor<f32>) -> tensor<?x8x?x128xbf16>
  %y = nn.attention %q, %k, %v {scale = 0.0883883461 : f32}
      : (tensor<?x32x1x128xbf16>, tensor<?x8x?x128xbf16>, tensor<?x8x?x128xbf16>) -> tensor<?x32x1x128xbf16>
  return %y : tensor<?x32x1x128xbf16>
}
