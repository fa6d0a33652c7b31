// A mean of 1e9, -1e9 and ordinary numbers is what the order of their sum leaves; a weight of 1e9 shows it.
// RUN: fusion-fuzz %s --seed=421635 --device=emulate

func.func @main(%v1: tensor<?x72xf32> {nn.dims = ["b", 72], nn.name = "v1"},
    %v2: tensor<72xf32> {nn.dims = [72], nn.name = "v2"},
    %v3: tensor<72xf32> {nn.dims = [72], nn.name = "v3"},
    %v5: tensor<2x256xf32> {nn.dims = [2, 256], nn.name = "v5"},
    %v6: tensor<256xf32> {nn.dims = [256], nn.name = "v6"},
    %v7: tensor<256xf32> {nn.dims = [256], nn.name = "v7"},
    %v9: tensor<256x5xf32> {nn.dims = [256, 5], nn.name = "v9"},
    %v11: tensor<32x256xf32> {nn.dims = [32, 256], nn.name = "v11"},
    %v13: tensor<2x5xf32> {nn.dims = [2, 5], nn.name = "v13"},
    %v15: tensor<5xf32> {nn.dims = [5], nn.name = "v15"})
    -> (tensor<?x72xf32>, tensor<2x32xf32>, tensor<2x5xf32>) {
  %v4 = nn.layer_norm %v1, %v2, %v3 {eps = 1.0e-3 : f32} : (tensor<?x72xf32>, tensor<72xf32>, tensor<72xf32>) -> (tensor<?x72xf32>)
  %v8 = nn.layer_norm %v5, %v6, %v7 {eps = 1.0e-6 : f32} : (tensor<2x256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x256xf32>)
  %v10 = nn.matmul %v8, %v9 : (tensor<2x256xf32>, tensor<256x5xf32>) -> (tensor<2x5xf32>)
  %v12 = nn.matmul %v8, %v11 {transpose_b = true} : (tensor<2x256xf32>, tensor<32x256xf32>) -> (tensor<2x32xf32>)
  %v14 = nn.add %v10, %v13 : (tensor<2x5xf32>, tensor<2x5xf32>) -> (tensor<2x5xf32>)
  %v16 = nn.rms_norm %v14, %v15 {eps = 1.0e-6 : f32} : (tensor<2x5xf32>, tensor<5xf32>) -> (tensor<2x5xf32>)
  return %v4, %v12, %v16 : tensor<?x72xf32>, tensor<2x32xf32>, tensor<2x5xf32>
}
