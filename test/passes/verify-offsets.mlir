// A group whose sizes belong together only in the graph (n rows have n + 1 offsets) is verified too.
// RUN: fusion-opt %s --fuse --profit=model --verify-fusions --require-plan 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=TOLD --input-file=%t

// TOLD: verifying fusions [1/1]
// TOLD-NOT: not verified
// CHECK: fusion.group "pointwise"
// CHECK: nn.slice
// CHECK: nn.slice
// CHECK: fusion.yield
func.func @main(%c: tensor<?xi32> {nn.dims = ["rows_and_one"], nn.name = "c"}, %p: tensor<?xi64> {nn.dims = ["rows"], nn.name = "p"})
    -> (tensor<?xi64> {nn.dims = ["rows"], nn.name = "length"}) {
  %w = nn.cast %c : (tensor<?xi32>) -> tensor<?xi64>
  %last = nn.slice %w {sizes = ["rows"], starts = [1], steps = array<i64: 1>} : (tensor<?xi64>) -> tensor<?xi64>
  %first = nn.slice %w {sizes = ["rows"], starts = [0], steps = array<i64: 1>} : (tensor<?xi64>) -> tensor<?xi64>
  %new = nn.sub %last, %first : (tensor<?xi64>, tensor<?xi64>) -> tensor<?xi64>
  %length = nn.add %new, %p : (tensor<?xi64>, tensor<?xi64>) -> tensor<?xi64>
  return %length : tensor<?xi64>
}
