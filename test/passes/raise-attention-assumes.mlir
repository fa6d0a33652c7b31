// What is taken for granted where a mask is a finite number, or a guard clears NaN, is in the report.
// RUN: fusion-opt %s --fuse --report=%t.json -o /dev/null
// RUN: FileCheck %s --input-file=%t.json
// RUN: fusion-opt %s --fuse --report=%t.md -o /dev/null
// RUN: FileCheck %s --input-file=%t.md
// Nothing is taken for granted, and the attentions stay as they are.
// RUN: fusion-opt %s --fuse --no-assume-finite --report=%t.strict.json -o %t.strict.mlir
// RUN: FileCheck %s --input-file=%t.strict.mlir --check-prefix=STRICT
// RUN: FileCheck %s --input-file=%t.strict.json --check-prefix=WHY

// STRICT-NOT: nn.attention
// STRICT-COUNT-4: nn.softmax
// STRICT-NOT: nn.attention
// WHY-DAG: it would take for granted, which --no-assume-finite forbids: scores are no NaN
// WHY-DAG: it would take for granted, which --no-assume-finite forbids: scores lie above the -65504
// WHY-DAG: it would take for granted, which --no-assume-finite forbids: scores are finite where several masks
// CHECK-DAG: scores are no NaN: rows of NaN become zeros only where all is masked; scores lie above the -10000 that masks them
// CHECK-DAG: scores lie above the -65504 that masks them
// CHECK-DAG: scores are finite where several masks hide them
// CHECK-DAG: every query sees a key
func.func @main(%q: tensor<2x4x8x32xf32>, %k: tensor<2x4x8x32xf32>, %v: tensor<2x4x8x32xf32>, %m: tensor<2x1x8x8xi1>,
                %qh: tensor<2x4x8x32xf16>, %kh: tensor<2x4x8x32xf16>, %vh: tensor<2x4x8x32xf16>,
                %bias: tensor<1x1x8x8xf32>, %sink: tensor<1x4x1x1xf32>)
    -> (tensor<2x4x8x32xf32>, tensor<2x4x8x32xf16>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>) {
  %low = nn.constant {value = dense<-1.0e+4> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x8xf32>
  %1 = nn.where %m, %0, %low : (tensor<2x1x8x8xi1>, tensor<2x4x8x8xf32>, tensor<f32>) -> tensor<2x4x8x8xf32>
  %2 = nn.softmax %1 {axis = -1 : i64} : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %n = nn.is_nan %2 : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xi1>
  %3 = nn.where %n, %zero, %2 : (tensor<2x4x8x8xi1>, tensor<f32>, tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %4 = nn.matmul %3, %v : (tensor<2x4x8x8xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x32xf32>
  %lowest = nn.constant {value = dense<-6.5504e+4> : tensor<f16>} : () -> tensor<f16>
  %none = nn.constant {value = dense<0.0> : tensor<f16>} : () -> tensor<f16>
  %mask = nn.where %m, %none, %lowest : (tensor<2x1x8x8xi1>, tensor<f16>, tensor<f16>) -> tensor<2x1x8x8xf16>
  %5 = nn.matmul %qh, %kh {transpose_b = true} : (tensor<2x4x8x32xf16>, tensor<2x4x8x32xf16>) -> tensor<2x4x8x8xf16>
  %6 = nn.add %5, %mask : (tensor<2x4x8x8xf16>, tensor<2x1x8x8xf16>) -> tensor<2x4x8x8xf16>
  %7 = nn.softmax %6 {axis = -1 : i64} : (tensor<2x4x8x8xf16>) -> tensor<2x4x8x8xf16>
  %8 = nn.matmul %7, %vh : (tensor<2x4x8x8xf16>, tensor<2x4x8x32xf16>) -> tensor<2x4x8x32xf16>
  %never = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %9 = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x8xf32>
  %10 = nn.add %9, %bias : (tensor<2x4x8x8xf32>, tensor<1x1x8x8xf32>) -> tensor<2x4x8x8xf32>
  %11 = nn.where %m, %10, %never : (tensor<2x1x8x8xi1>, tensor<2x4x8x8xf32>, tensor<f32>) -> tensor<2x4x8x8xf32>
  %12 = nn.softmax %11 {axis = -1 : i64} : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %13 = nn.matmul %12, %v : (tensor<2x4x8x8xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x32xf32>
  %s = nn.matmul %k, %q {transpose_b = true} : (tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x8xf32>
  %a = nn.add %s, %bias : (tensor<2x4x8x8xf32>, tensor<1x1x8x8xf32>) -> tensor<2x4x8x8xf32>
  %largest = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x1xf32>
  %d = nn.sub %a, %largest : (tensor<2x4x8x8xf32>, tensor<2x4x8x1xf32>) -> tensor<2x4x8x8xf32>
  %e = nn.exp %d : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x1xf32>
  %l = nn.log %t : (tensor<2x4x8x1xf32>) -> tensor<2x4x8x1xf32>
  %f = nn.add %l, %largest : (tensor<2x4x8x1xf32>, tensor<2x4x8x1xf32>) -> tensor<2x4x8x1xf32>
  %h = nn.sub %f, %sink : (tensor<2x4x8x1xf32>, tensor<1x4x1x1xf32>) -> tensor<2x4x8x1xf32>
  %g = nn.sigmoid %h : (tensor<2x4x8x1xf32>) -> tensor<2x4x8x1xf32>
  %p = nn.softmax %a {axis = -1 : i64} : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x8x8xf32>, tensor<2x4x8x32xf32>) -> tensor<2x4x8x32xf32>
  %y = nn.mul %o, %g : (tensor<2x4x8x32xf32>, tensor<2x4x8x1xf32>) -> tensor<2x4x8x32xf32>
  return %4, %8, %13, %y : tensor<2x4x8x32xf32>, tensor<2x4x8x32xf16>, tensor<2x4x8x32xf32>, tensor<2x4x8x32xf32>
}
