// RUN: fusion-opt %s --nn-shard=ranks=2 --split-input-file | FileCheck %s

// Columns of the experts' first weights and biases, rows of the second: parts of weights in parts. What the ranks have of the
// second product is summed before its bias comes.
// CHECK-LABEL: func @experts
// CHECK: %[[U:.*]] = nn.weight {length = 1024 : i64, name = "up", offset = 0 : i64, part_offsets = array<i64: 0, 512>, part_paths = ["w.bin", "v.bin"], path = "w.bin", starts = [0, "8*tp_rank", 0], whole = array<i64: 2, 16, 8>} : () -> tensor<2x8x8xf32>
// CHECK: nn.weight {{.*}} starts = [0, "8*tp_rank"], whole = array<i64: 2, 16>} : () -> tensor<2x8xf32>
// CHECK: nn.weight {{.*}} starts = [0, 0, "8*tp_rank"], whole = array<i64: 2, 8, 16>} : () -> tensor<2x8x8xf32>
// CHECK: %[[H:.*]] = nn.expert_matmul %{{.*}}, %[[U]], %{{.*}} {transpose_w = true} : (tensor<?x1x8xf32>, tensor<2x8x8xf32>, tensor<?x2xi64>) -> tensor<?x2x8xf32>
// CHECK: nn.silu %{{.*}} : (tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
// CHECK: %[[P:.*]] = nn.expert_matmul
// CHECK-NEXT: %[[Y:.*]] = nn.all_reduce %[[P]] : (tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
// CHECK: nn.add %[[Y]],
func.func @experts(%x: tensor<?x1x8xf32> {nn.dims = ["n", 1, 8]}, %i: tensor<?x2xi64> {nn.dims = ["n", 2]}) -> tensor<?x2x8xf32> {
  %up = nn.weight {name = "up", path = "w.bin", offset = 0 : i64, length = 1024 : i64, part_paths = ["w.bin", "v.bin"], part_offsets = array<i64: 0, 512>} : () -> tensor<2x16x8xf32>
  %b = nn.weight {name = "b", path = "w.bin", offset = 1024 : i64, length = 128 : i64} : () -> tensor<2x16xf32>
  %down = nn.weight {name = "down", path = "w.bin", offset = 2048 : i64, length = 1024 : i64} : () -> tensor<2x8x16xf32>
  %c = nn.weight {name = "c", path = "w.bin", offset = 4096 : i64, length = 64 : i64} : () -> tensor<2x8xf32>
  %0 = nn.expert_matmul %x, %up, %i {transpose_w = true} : (tensor<?x1x8xf32>, tensor<2x16x8xf32>, tensor<?x2xi64>) -> tensor<?x2x16xf32>
  %1 = nn.gather %b, %i {axis = 0 : i64} : (tensor<2x16xf32>, tensor<?x2xi64>) -> tensor<?x2x16xf32>
  %2 = nn.add %0, %1 : (tensor<?x2x16xf32>, tensor<?x2x16xf32>) -> tensor<?x2x16xf32>
  %3 = nn.silu %2 : (tensor<?x2x16xf32>) -> tensor<?x2x16xf32>
  %4 = nn.expert_matmul %3, %down, %i {transpose_w = true} : (tensor<?x2x16xf32>, tensor<2x8x16xf32>, tensor<?x2xi64>) -> tensor<?x2x8xf32>
  %5 = nn.gather %c, %i {axis = 0 : i64} : (tensor<2x8xf32>, tensor<?x2xi64>) -> tensor<?x2x8xf32>
  %6 = nn.add %4, %5 : (tensor<?x2x8xf32>, tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  return %6 : tensor<?x2x8xf32>
}

// -----

// One routing weight for all columns: the slots are summed first.
// CHECK-LABEL: func @slots_first
// CHECK: nn.silu
// CHECK: %[[P:.*]] = nn.expert_matmul
// CHECK-NEXT: %[[C:.*]] = nn.cast %[[P]]
// CHECK-NEXT: %[[M:.*]] = nn.mul %[[C]], %{{.*}}
// CHECK-NEXT: %[[S:.*]] = nn.reduce %[[M]]
// CHECK-NEXT: %[[A:.*]] = nn.all_reduce %[[S]] : (tensor<?x8xf32>) -> tensor<?x8xf32>
// CHECK-NEXT: return %[[A]]
func.func @slots_first(%x: tensor<?x1x8xbf16> {nn.dims = ["n", 1, 8]}, %i: tensor<?x2xi64> {nn.dims = ["n", 2]}, %r: tensor<?x2x1xf32> {nn.dims = ["n", 2, 1]}) -> tensor<?x8xf32> {
  %up = nn.weight {name = "up", path = "w.bin", offset = 0 : i64, length = 512 : i64} : () -> tensor<2x16x8xbf16>
  %down = nn.weight {name = "down", path = "w.bin", offset = 512 : i64, length = 512 : i64} : () -> tensor<2x8x16xbf16>
  %0 = nn.expert_matmul %x, %up, %i {transpose_w = true} : (tensor<?x1x8xbf16>, tensor<2x16x8xbf16>, tensor<?x2xi64>) -> tensor<?x2x16xbf16>
  %1 = nn.silu %0 : (tensor<?x2x16xbf16>) -> tensor<?x2x16xbf16>
  %2 = nn.expert_matmul %1, %down, %i {transpose_w = true} : (tensor<?x2x16xbf16>, tensor<2x8x16xbf16>, tensor<?x2xi64>) -> tensor<?x2x8xbf16>
  %3 = nn.cast %2 : (tensor<?x2x8xbf16>) -> tensor<?x2x8xf32>
  %4 = nn.mul %3, %r : (tensor<?x2x8xf32>, tensor<?x2x1xf32>) -> tensor<?x2x8xf32>
  %5 = nn.reduce %4 {axes = array<i64: 1>, keepdims = false, kind = "sum"} : (tensor<?x2x8xf32>) -> tensor<?x8xf32>
  return %5 : tensor<?x8xf32>
}

// -----

// A weight for each column does not let a sum pass.
// CHECK-LABEL: func @weight_of_columns
// CHECK: nn.silu
// CHECK: %[[P:.*]] = nn.expert_matmul
// CHECK-NEXT: nn.all_reduce %[[P]] : (tensor<?x2x8xf32>)
func.func @weight_of_columns(%x: tensor<?x1x8xf32> {nn.dims = ["n", 1, 8]}, %i: tensor<?x2xi64> {nn.dims = ["n", 2]}, %r: tensor<?x2x8xf32> {nn.dims = ["n", 2, 8]}) -> tensor<?x8xf32> {
  %up = nn.weight {name = "up", path = "w.bin", offset = 0 : i64, length = 1024 : i64} : () -> tensor<2x16x8xf32>
  %down = nn.weight {name = "down", path = "w.bin", offset = 1024 : i64, length = 1024 : i64} : () -> tensor<2x8x16xf32>
  %0 = nn.expert_matmul %x, %up, %i {transpose_w = true} : (tensor<?x1x8xf32>, tensor<2x16x8xf32>, tensor<?x2xi64>) -> tensor<?x2x16xf32>
  %1 = nn.silu %0 : (tensor<?x2x16xf32>) -> tensor<?x2x16xf32>
  %2 = nn.expert_matmul %1, %down, %i {transpose_w = true} : (tensor<?x2x16xf32>, tensor<2x8x16xf32>, tensor<?x2xi64>) -> tensor<?x2x8xf32>
  %4 = nn.mul %2, %r : (tensor<?x2x8xf32>, tensor<?x2x8xf32>) -> tensor<?x2x8xf32>
  %5 = nn.reduce %4 {axes = array<i64: 1>, keepdims = false, kind = "sum"} : (tensor<?x2x8xf32>) -> tensor<?x8xf32>
  return %5 : tensor<?x8xf32>
}
