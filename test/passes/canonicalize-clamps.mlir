// RUN: fusion-opt %s --nn-canonicalize --split-input-file | FileCheck %s

// Indices of top_k are in range.
// CHECK-LABEL: func @in_range
// CHECK-NEXT: %[[I:.*]] = nn.top_k
// CHECK-NEXT: return %[[I]], %[[I]]
func.func @in_range(%x: tensor<?x8xf32> {nn.dims = ["t", 8]}) -> (tensor<?x2xi64>, tensor<?x2xi64>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %seven = nn.constant {value = dense<7> : tensor<i64>} : () -> tensor<i64>
  %eight = nn.constant {value = dense<8> : tensor<i64>} : () -> tensor<i64>
  %i = nn.top_k %x {axis = 1 : i64, k = [2]} : (tensor<?x8xf32>) -> tensor<?x2xi64>
  %a = nn.max %i, %zero : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi64>
  %b = nn.min %a, %seven : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi64>
  %n = nn.less %i, %zero : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %s = nn.add %i, %eight : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi64>
  %w = nn.where %n, %s, %i : (tensor<?x2xi1>, tensor<?x2xi64>, tensor<?x2xi64>) -> tensor<?x2xi64>
  return %b, %w : tensor<?x2xi64>, tensor<?x2xi64>
}

// -----

// A clamp that changes something, and indices of which nothing is known.
// CHECK-LABEL: func @needed
// CHECK: nn.min
// CHECK: nn.max
func.func @needed(%x: tensor<?x8xf32> {nn.dims = ["t", 8]}, %j: tensor<?x2xi64> {nn.dims = ["t", 2]}) -> (tensor<?x2xi64>, tensor<?x2xi64>) {
  %zero = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %six = nn.constant {value = dense<6> : tensor<i64>} : () -> tensor<i64>
  %i = nn.top_k %x {axis = 1 : i64, k = [2]} : (tensor<?x8xf32>) -> tensor<?x2xi64>
  %a = nn.min %i, %six : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi64>
  %b = nn.max %j, %zero : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi64>
  return %a, %b : tensor<?x2xi64>, tensor<?x2xi64>
}
