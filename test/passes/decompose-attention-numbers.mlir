// Every rewrite and kernel is compared with what it replaced.
// RUN: fusion-opt %s --fuse --verify-fusions --require-plan -o /dev/null
func.func @masked(%q: tensor<2x4x3x272xf32>, %k: tensor<2x2x7x272xf32>, %v: tensor<2x2x7x16xf32>, %m: tensor<2x1x3x7xi1>) -> tensor<2x4x3x16xf32> {
  %y = nn.attention %q, %k, %v, %m {scale = 0.06 : f32, window = 5 : i64, softcap = 20.0 : f32, zero_masked_rows = true} : (tensor<2x4x3x272xf32>, tensor<2x2x7x272xf32>, tensor<2x2x7x16xf32>, tensor<2x1x3x7xi1>) -> tensor<2x4x3x16xf32>
  return %y : tensor<2x4x3x16xf32>
}
