// Rotary embeddings of pairs whose dim one reshape adds together with the heads', and another merges together with
// them, as it becomes of code that views the pairs, with tables that are cut from buffers.
// RUN: fusion-opt %s --nn-raise-rope --nn-canonicalize --split-input-file | FileCheck %s

// CHECK-LABEL: func @pairs
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x?x32xf32>
// CHECK-DAG: %[[C:.*]] = nn.slice {{.*}}min(64, s)
// CHECK-DAG: %[[S:.*]] = nn.slice {{.*}}min(64, s)
// CHECK-DAG: %[[H:.*]] = nn.reshape %[[X]] {shape = ["b", "s", 2, 16]}
// CHECK: %[[R:.*]] = nn.rope %[[H]], %[[C]], %[[S]] {interleaved = true, rotary_dim = 16 : i64}
// CHECK-NEXT: %[[Y:.*]] = nn.reshape %[[R]] {shape = ["b", "s", 32]}
// CHECK-NEXT: return %[[Y]]
func.func @pairs(%x: tensor<?x?x32xf32> {nn.name = "x", nn.dims = ["b", "s", 32]},
    %cos: tensor<1x64x1x8xf32>, %sin: tensor<1x64x1x8xf32>) -> tensor<?x?x32xf32> {
  %c = nn.slice %cos {starts = [0, 0, 0, 0], sizes = [1, "min(64, s)", 1, 8], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x64x1x8xf32>) -> tensor<1x?x1x8xf32>
  %s = nn.slice %sin {starts = [0, 0, 0, 0], sizes = [1, "min(64, s)", 1, 8], steps = array<i64: 1, 1, 1, 1>} : (tensor<1x64x1x8xf32>) -> tensor<1x?x1x8xf32>
  %p = nn.reshape %x {shape = ["b", "s", 2, 8, 2]} : (tensor<?x?x32xf32>) -> tensor<?x?x2x8x2xf32>
  %0 = nn.slice %p {starts = [0, 0, 0, 0, 0], sizes = ["b", "s", 2, 8, 1], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<?x?x2x8x2xf32>) -> tensor<?x?x2x8x1xf32>
  %first = nn.reshape %0 {shape = ["b", "s", 2, 8]} : (tensor<?x?x2x8x1xf32>) -> tensor<?x?x2x8xf32>
  %1 = nn.slice %p {starts = [0, 0, 0, 0, 1], sizes = ["b", "s", 2, 8, 1], steps = array<i64: 1, 1, 1, 1, 1>} : (tensor<?x?x2x8x2xf32>) -> tensor<?x?x2x8x1xf32>
  %second = nn.reshape %1 {shape = ["b", "s", 2, 8]} : (tensor<?x?x2x8x1xf32>) -> tensor<?x?x2x8xf32>
  %2 = nn.mul %first, %c : (tensor<?x?x2x8xf32>, tensor<1x?x1x8xf32>) -> tensor<?x?x2x8xf32>
  %3 = nn.mul %second, %s : (tensor<?x?x2x8xf32>, tensor<1x?x1x8xf32>) -> tensor<?x?x2x8xf32>
  %4 = nn.sub %2, %3 : (tensor<?x?x2x8xf32>, tensor<?x?x2x8xf32>) -> tensor<?x?x2x8xf32>
  %5 = nn.mul %first, %s : (tensor<?x?x2x8xf32>, tensor<1x?x1x8xf32>) -> tensor<?x?x2x8xf32>
  %6 = nn.mul %second, %c : (tensor<?x?x2x8xf32>, tensor<1x?x1x8xf32>) -> tensor<?x?x2x8xf32>
  %7 = nn.add %5, %6 : (tensor<?x?x2x8xf32>, tensor<?x?x2x8xf32>) -> tensor<?x?x2x8xf32>
  %8 = nn.reshape %4 {shape = ["b", "s", 2, 8, 1]} : (tensor<?x?x2x8xf32>) -> tensor<?x?x2x8x1xf32>
  %9 = nn.reshape %7 {shape = ["b", "s", 2, 8, 1]} : (tensor<?x?x2x8xf32>) -> tensor<?x?x2x8x1xf32>
  %10 = nn.concat %8, %9 {axis = 4 : i64} : (tensor<?x?x2x8x1xf32>, tensor<?x?x2x8x1xf32>) -> tensor<?x?x2x8x2xf32>
  %11 = nn.reshape %10 {shape = ["b", "s", 32]} : (tensor<?x?x2x8x2xf32>) -> tensor<?x?x32xf32>
  return %11 : tensor<?x?x32xf32>
}

// -----

// A table with a row for each of n tokens makes many of one: the rotation would have the rows of x.
// CHECK-LABEL: func @one_row
// CHECK-NOT: nn.rope
// CHECK: nn.concat
func.func @one_row(%x: tensor<2x1x16xf32> {nn.name = "x", nn.dims = [2, 1, 16]},
    %cos: tensor<?x8xf32> {nn.name = "cos", nn.dims = ["n", 8]},
    %sin: tensor<?x8xf32> {nn.name = "sin", nn.dims = ["n", 8]}) -> tensor<2x?x16xf32> {
  %p = nn.reshape %x {shape = [2, 1, 8, 2]} : (tensor<2x1x16xf32>) -> tensor<2x1x8x2xf32>
  %0 = nn.slice %p {starts = [0, 0, 0, 0], sizes = [2, 1, 8, 1], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x1x8x2xf32>) -> tensor<2x1x8x1xf32>
  %first = nn.reshape %0 {shape = [2, 1, 8]} : (tensor<2x1x8x1xf32>) -> tensor<2x1x8xf32>
  %1 = nn.slice %p {starts = [0, 0, 0, 1], sizes = [2, 1, 8, 1], steps = array<i64: 1, 1, 1, 1>} : (tensor<2x1x8x2xf32>) -> tensor<2x1x8x1xf32>
  %second = nn.reshape %1 {shape = [2, 1, 8]} : (tensor<2x1x8x1xf32>) -> tensor<2x1x8xf32>
  %2 = nn.mul %first, %cos : (tensor<2x1x8xf32>, tensor<?x8xf32>) -> tensor<2x?x8xf32>
  %3 = nn.mul %second, %sin : (tensor<2x1x8xf32>, tensor<?x8xf32>) -> tensor<2x?x8xf32>
  %4 = nn.sub %2, %3 : (tensor<2x?x8xf32>, tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  %5 = nn.mul %first, %sin : (tensor<2x1x8xf32>, tensor<?x8xf32>) -> tensor<2x?x8xf32>
  %6 = nn.mul %second, %cos : (tensor<2x1x8xf32>, tensor<?x8xf32>) -> tensor<2x?x8xf32>
  %7 = nn.add %5, %6 : (tensor<2x?x8xf32>, tensor<2x?x8xf32>) -> tensor<2x?x8xf32>
  %8 = nn.reshape %4 {shape = [2, "n", 8, 1]} : (tensor<2x?x8xf32>) -> tensor<2x?x8x1xf32>
  %9 = nn.reshape %7 {shape = [2, "n", 8, 1]} : (tensor<2x?x8xf32>) -> tensor<2x?x8x1xf32>
  %10 = nn.concat %8, %9 {axis = 3 : i64} : (tensor<2x?x8x1xf32>, tensor<2x?x8x1xf32>) -> tensor<2x?x8x2xf32>
  %11 = nn.reshape %10 {shape = [2, "n", 16]} : (tensor<2x?x8x2xf32>) -> tensor<2x?x16xf32>
  return %11 : tensor<2x?x16xf32>
}

// -----

// Paddle's negation is x * -1 + 0.
// CHECK-LABEL: func @scaled_by_minus_one
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<2x4x8xf32>, %[[C:[a-z0-9]*]]: tensor<4x8xf32>, %[[S:[a-z0-9]*]]: tensor<4x8xf32>)
// CHECK-NEXT: %[[R:.*]] = nn.rope %[[X]], %[[C]], %[[S]] {interleaved = false, rotary_dim = 8 : i64}
// CHECK-NEXT: return %[[R]]
func.func @scaled_by_minus_one(%x: tensor<2x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %minus = nn.constant {value = dense<-1.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %lo = nn.slice %x {starts = [0, 0, 0], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %hi = nn.slice %x {starts = [0, 0, 4], sizes = [2, 4, 4], steps = array<i64: 1, 1, 1>} : (tensor<2x4x8xf32>) -> tensor<2x4x4xf32>
  %m = nn.mul %hi, %minus : (tensor<2x4x4xf32>, tensor<1xf32>) -> tensor<2x4x4xf32>
  %n = nn.add %m, %zero : (tensor<2x4x4xf32>, tensor<f32>) -> tensor<2x4x4xf32>
  %h = nn.concat %n, %lo {axis = 2 : i64} : (tensor<2x4x4xf32>, tensor<2x4x4xf32>) -> tensor<2x4x8xf32>
  %0 = nn.mul %x, %cos : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %1 = nn.mul %h, %sin : (tensor<2x4x8xf32>, tensor<4x8xf32>) -> tensor<2x4x8xf32>
  %2 = nn.add %0, %1 : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %2 : tensor<2x4x8xf32>
}
