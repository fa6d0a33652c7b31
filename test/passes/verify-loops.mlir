// What is rewritten behind a loop is checked on any results of it: its body stands elsewhere.
// RUN: fusion-opt %s --fuse --target=sm_90a --verify-fusions -o - | FileCheck %s

// CHECK: nn.loop
// CHECK: nn.reshape
// CHECK-NOT: nn.reshape
// CHECK: return
func.func private @step(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> tensor<?x8xf32> {
  %0 = nn.tanh %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
func.func @main(%x: tensor<?x8xf32> {nn.name = "x", nn.dims = ["n", 8]}) -> (tensor<?x4xf32> {nn.name = "y"}) {
  %0 = nn.loop %x {body = @step, steps = ["n"]} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.reshape %0 {shape = ["n", 2, 4]} : (tensor<?x8xf32>) -> tensor<?x2x4xf32>
  %2 = nn.reshape %1 {shape = ["2*n", 4]} : (tensor<?x2x4xf32>) -> tensor<?x4xf32>
  return %2 : tensor<?x4xf32>
}
