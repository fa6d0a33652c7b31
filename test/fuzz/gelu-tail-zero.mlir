// The tail of a GELU is 0 in all elements; the kernel leaves 1e-34.
// RUN: fusion-fuzz %s --seed=423200 --device=emulate

func.func @main(%v3: tensor<64xf32> {nn.dims = [64], nn.name = "v3"},
    %v5: tensor<1x64xbf16> {nn.dims = [1, 64], nn.name = "v5"},
    %v6: tensor<7x64xui8> {nn.dims = [7, 64], nn.name = "code_v6"},
    %v7: tensor<7x2xbf16> {nn.dims = [7, 2], nn.name = "scale_v7"},
    %v11: tensor<?x?x64xf32> {nn.dims = ["b", "s", 64], nn.name = "v11"})
    -> (tensor<?x?x64xf32>, tensor<1x7xbf16>, tensor<1x7xbf16>) {
  %v4 = nn.mul %v11, %v3 : (tensor<?x?x64xf32>, tensor<64xf32>) -> (tensor<?x?x64xf32>)
  %v8 = nn.dequantize %v6, %v7 {axis = 1 : i64, block_size = 32 : i64} : (tensor<7x64xui8>, tensor<7x2xbf16>) -> (tensor<7x64xbf16>)
  %v9 = nn.matmul %v5, %v8 {transpose_b = true} : (tensor<1x64xbf16>, tensor<7x64xbf16>) -> (tensor<1x7xbf16>)
  %v10 = nn.gelu %v9 {approximate = "tanh"} : (tensor<1x7xbf16>) -> (tensor<1x7xbf16>)
  return %v4, %v9, %v10 : tensor<?x?x64xf32>, tensor<1x7xbf16>, tensor<1x7xbf16>
}
