// A rewrite that depends on what is known, a product with ones, is checked with them and not with any numbers.
// RUN: fusion-opt %s --fuse --target=sm_90a --verify-fusions -o - | FileCheck %s

// CHECK-NOT: nn.equal
// CHECK: return
func.func @main(%x: tensor<?x10xi64> {nn.name = "x", nn.dims = ["n", 10]}) -> (tensor<?x10xi64> {nn.name = "y"}) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %zeros = nn.expand %zero {shape = ["n", 10]} : (tensor<i64>) -> tensor<?x10xi64>
  %c = nn.equal %zeros, %one : (tensor<?x10xi64>, tensor<i64>) -> tensor<?x10xi1>
  %not = nn.not %c : (tensor<?x10xi1>) -> tensor<?x10xi1>
  %ones = nn.cast %not : (tensor<?x10xi1>) -> tensor<?x10xi64>
  %sum = nn.cumsum %ones {axis = 1 : i64, exclusive = false, reverse = false} : (tensor<?x10xi64>) -> tensor<?x10xi64>
  %places = nn.mul %sum, %ones : (tensor<?x10xi64>, tensor<?x10xi64>) -> tensor<?x10xi64>
  %y = nn.add %places, %x : (tensor<?x10xi64>, tensor<?x10xi64>) -> tensor<?x10xi64>
  return %y : tensor<?x10xi64>
}
