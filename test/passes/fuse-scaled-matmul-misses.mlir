// RUN: fusion-opt %s --fuse --report=%t.json | FileCheck %s
// RUN: FileCheck %s --check-prefix=REPORT --input-file=%t.json

// Scales that differ between the matrices of a batch: the weight is dequantised by itself.
// CHECK: nn.dequantize
// CHECK: nn.matmul
// REPORT: no schedule: {{.*}}matmul: scales that differ between the matrices of a batch
func.func @main(%a: tensor<2x5x64xf32>, %q: tensor<2x64x32xi8>, %s: tensor<2xf32>) -> tensor<2x5x32xf32> {
  %0 = nn.dequantize %q, %s {axis = 0 : i64} : (tensor<2x64x32xi8>, tensor<2xf32>) -> tensor<2x64x32xf32>
  %1 = nn.matmul %a, %0 : (tensor<2x5x64xf32>, tensor<2x64x32xf32>) -> tensor<2x5x32xf32>
  return %1 : tensor<2x5x32xf32>
}
