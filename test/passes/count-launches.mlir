// A report counts the kernels that groups and ops launch at the sizes it assumes: batch 1, others 128.
// RUN: fusion-opt %s --fuse --report=%t.json -o /dev/null
// RUN: FileCheck %s < %t.json
// RUN: fusion-opt %s --fuse --fuse-disable=matmul_arg_max --report=%t.json -o /dev/null
// RUN: FileCheck %s < %t.json

// A head of one row: two, the matmul that finds the largest and the kernel that chooses of what it found, or the
// matmul and nn.arg_max. A draw of one long row, which many blocks share: the largest, two rounds of bins, sums,
// the place. The same of 128 rows: one.
// CHECK: "kernels": {
// CHECK-NEXT: "after": 8,
// CHECK-NEXT: "before": 8
func.func @main(%x: tensor<?x128xbf16> {nn.name = "x", nn.dims = ["batch", 128]},
                %w: tensor<1000x128xbf16> {nn.name = "w"},
                %few: tensor<?x32000xbf16> {nn.name = "few", nn.dims = ["batch", 32000]},
                %many: tensor<?x32000xbf16> {nn.name = "many", nn.dims = ["rows", 32000]},
                %s: tensor<2xi64> {nn.name = "s"}) -> (tensor<?xi64>, tensor<?xi64>, tensor<?xi64>) {
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x128xbf16>, tensor<1000x128xbf16>) -> tensor<?x1000xbf16>
  %1 = nn.arg_max %0 {axis = 1 : i64, keepdims = false} : (tensor<?x1000xbf16>) -> tensor<?xi64>
  %2 = nn.sample %few, %s {temperature = 1.0 : f32, top_p = 0.9 : f64} : (tensor<?x32000xbf16>, tensor<2xi64>) -> tensor<?xi64>
  %3 = nn.sample %many, %s {temperature = 1.0 : f32, top_p = 0.9 : f64} : (tensor<?x32000xbf16>, tensor<2xi64>) -> tensor<?xi64>
  return %1, %2, %3 : tensor<?xi64>, tensor<?xi64>, tensor<?xi64>
}
