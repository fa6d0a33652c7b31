// RUN: fusion-opt %s --nn-shard=ranks=2 --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-shard=ranks=2 --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// Columns of one weight, rows of the other, stored transposed: each rank loads its shard of both.
// CHECK-LABEL: func @feed_forward
// CHECK-NOT: nn.slice
// CHECK: nn.weight {length = 512 : i64, name = "up", offset = 0 : i64, path = "w.bin", starts = ["8*tp_rank", 0], whole = array<i64: 16, 8>} : () -> tensor<8x8xf32>
// CHECK: nn.weight {length = 512 : i64, name = "down", offset = 512 : i64, path = "w.bin", starts = [0, "8*tp_rank"], whole = array<i64: 8, 16>} : () -> tensor<8x8xf32>
func.func @feed_forward(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> tensor<?x8xf32> {
  %up = nn.weight {name = "up", path = "w.bin", offset = 0 : i64, length = 512 : i64} : () -> tensor<16x8xf32>
  %down = nn.weight {name = "down", path = "w.bin", offset = 512 : i64, length = 512 : i64} : () -> tensor<8x16xf32>
  %0 = nn.matmul %x, %up {transpose_b = true} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %1 = nn.silu %0 : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %2 = nn.matmul %1, %down {transpose_b = true} : (tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %2 : tensor<?x8xf32>
}

// -----

// Slices of a packed weight: the shard of each slice, without the slice. The third stays whole, as a part of its own.
// CHECK-LABEL: func @packed
// CHECK-NOT: nn.slice
// CHECK-DAG: starts = [0, "8*tp_rank"], whole = array<i64: 8, 36>} : () -> tensor<8x8xf32>
// CHECK-DAG: starts = [0, "8*tp_rank + 16"], whole = array<i64: 8, 36>} : () -> tensor<8x8xf32>
// CHECK-DAG: starts = [0, 32], whole = array<i64: 8, 36>} : () -> tensor<8x4xf32>
// CHECK: return
func.func @packed(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> (tensor<?x8xf32>, tensor<?x4xf32>) {
  %w = nn.weight {name = "gate_up", path = "w.bin", offset = 0 : i64, length = 1152 : i64} : () -> tensor<8x36xf32>
  %down = nn.weight {name = "down", path = "w.bin", offset = 1152 : i64, length = 512 : i64} : () -> tensor<16x8xf32>
  %0 = nn.matmul %x, %w : (tensor<?x8xf32>, tensor<8x36xf32>) -> tensor<?x36xf32>
  %g = nn.slice %0 {starts = [0, 0], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x36xf32>) -> tensor<?x16xf32>
  %u = nn.slice %0 {starts = [0, 16], sizes = ["n", 16], steps = array<i64: 1, 1>} : (tensor<?x36xf32>) -> tensor<?x16xf32>
  %r = nn.slice %0 {starts = [0, 32], sizes = ["n", 4], steps = array<i64: 1, 1>} : (tensor<?x36xf32>) -> tensor<?x4xf32>
  %1 = nn.mul %g, %u : (tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  %2 = nn.matmul %1, %down : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x8xf32>
  return %2, %r : tensor<?x8xf32>, tensor<?x4xf32>
}

// -----

// Elements of 4 bits: five rows of three have shards that begin inside a byte; then the weight is loaded whole.
// CHECK-LABEL: func @four_bits
// CHECK: nn.weight {length = 15 : i64, name = "odd"{{.*}} : () -> tensor<10x3xi4>
// CHECK: nn.slice %{{.*}} {sizes = [5, 3], starts = ["5*tp_rank", 0]
// CHECK-NOT: nn.slice
// CHECK: name = "even"{{.*}}starts = ["5*tp_rank", 0], whole = array<i64: 10, 4>} : () -> tensor<5x4xi4>
// CHECK: return
// MISS: [Missed] shard {{.*}}every rank loads all of it: shards of 4-bit elements would begin inside a byte
func.func @four_bits(%x: tensor<?x3xf32> {nn.dims = ["n", 3]}) -> tensor<?x4xf32> {
  %s = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %a = nn.weight {name = "odd", path = "w.bin", offset = 0 : i64, length = 15 : i64} : () -> tensor<10x3xi4>
  %b = nn.weight {name = "even", path = "w.bin", offset = 16 : i64, length = 20 : i64} : () -> tensor<10x4xi4>
  %wa = nn.dequantize %a, %s : (tensor<10x3xi4>, tensor<f32>) -> tensor<10x3xf32>
  %wb = nn.dequantize %b, %s : (tensor<10x4xi4>, tensor<f32>) -> tensor<10x4xf32>
  %0 = nn.matmul %x, %wa {transpose_b = true} : (tensor<?x3xf32>, tensor<10x3xf32>) -> tensor<?x10xf32>
  %1 = nn.relu %0 : (tensor<?x10xf32>) -> tensor<?x10xf32>
  %2 = nn.matmul %1, %wb : (tensor<?x10xf32>, tensor<10x4xf32>) -> tensor<?x4xf32>
  return %2 : tensor<?x4xf32>
}

// -----

// A weight that is read whole too is not loaded twice: the slice of it is cut where it lies.
// CHECK-LABEL: func @read_whole_too
// CHECK: %[[W:.*]] = nn.weight {length = 1024 : i64, name = "w"{{.*}} : () -> tensor<8x32xf32>
// CHECK-NEXT: %[[S:.*]] = nn.slice %[[W]] {sizes = [8, 16], starts = [0, 0]
// CHECK-NEXT: nn.slice %[[S]] {sizes = [8, 8], starts = [0, "8*tp_rank"]
func.func @read_whole_too(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> (tensor<?x8xf32>, tensor<?x32xf32>) {
  %w = nn.weight {name = "w", path = "w.bin", offset = 0 : i64, length = 1024 : i64} : () -> tensor<8x32xf32>
  %s = nn.slice %w {starts = [0, 0], sizes = [8, 16], steps = array<i64: 1, 1>} : (tensor<8x32xf32>) -> tensor<8x16xf32>
  %down = nn.weight {name = "down", path = "w.bin", offset = 1024 : i64, length = 512 : i64} : () -> tensor<16x8xf32>
  %0 = nn.matmul %x, %s : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %1 = nn.matmul %0, %down : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x8xf32>
  %2 = nn.matmul %x, %w : (tensor<?x8xf32>, tensor<8x32xf32>) -> tensor<?x32xf32>
  return %1, %2 : tensor<?x8xf32>, tensor<?x32xf32>
}

// -----

// A part that only a run knows is no shard of its own.
// CHECK-LABEL: func @length_of_a_run
// CHECK: %[[W:.*]] = nn.weight {{.*}}name = "positions"{{.*}} : () -> tensor<64x8xf32>
// CHECK: nn.weight {{.*}}starts = [0, "8*tp_rank"]
// CHECK: nn.slice %[[W]] {sizes = ["n", 8], starts = [0, 0]
func.func @length_of_a_run(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> tensor<?x8xf32> {
  %p = nn.weight {name = "positions", path = "w.bin", offset = 0 : i64, length = 2048 : i64} : () -> tensor<64x8xf32>
  %up = nn.weight {name = "up", path = "w.bin", offset = 2048 : i64, length = 512 : i64} : () -> tensor<8x16xf32>
  %down = nn.weight {name = "down", path = "w.bin", offset = 2560 : i64, length = 512 : i64} : () -> tensor<16x8xf32>
  %s = nn.slice %p {starts = [0, 0], sizes = ["n", 8], steps = array<i64: 1, 1>} : (tensor<64x8xf32>) -> tensor<?x8xf32>
  %0 = nn.add %x, %s : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.matmul %0, %up : (tensor<?x8xf32>, tensor<8x16xf32>) -> tensor<?x16xf32>
  %2 = nn.matmul %1, %down : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x8xf32>
  return %2 : tensor<?x8xf32>
}

// -----

// The scales of blocks lie in the file as one row: their own rows are divided all the same.
// CHECK-LABEL: func @reshaped_scales
// CHECK-NOT: nn.reshape
// CHECK-DAG: name = "scales"{{.*}}starts = ["4*tp_rank", 0], whole = array<i64: 8, 2>} : () -> tensor<4x2xf32>
// CHECK-DAG: name = "codes"{{.*}}starts = ["4*tp_rank", 0], whole = array<i64: 8, 8>} : () -> tensor<4x8xi8>
// CHECK: nn.all_reduce
func.func @reshaped_scales(%x: tensor<?x8xf32> {nn.dims = ["n", 8]}) -> tensor<?x4xf32> {
  %q = nn.weight {name = "codes", path = "w.bin", offset = 0 : i64, length = 64 : i64} : () -> tensor<8x8xi8>
  %s = nn.weight {name = "scales", path = "w.bin", offset = 64 : i64, length = 64 : i64} : () -> tensor<16xf32>
  %down = nn.weight {name = "down", path = "w.bin", offset = 128 : i64, length = 128 : i64} : () -> tensor<8x4xf32>
  %r = nn.reshape %s {shape = [8, 2]} : (tensor<16xf32>) -> tensor<8x2xf32>
  %w = nn.dequantize %q, %r {axis = 1 : i64, block_size = 4 : i64} : (tensor<8x8xi8>, tensor<8x2xf32>) -> tensor<8x8xf32>
  %0 = nn.matmul %x, %w {transpose_b = true} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %1 = nn.matmul %0, %down : (tensor<?x8xf32>, tensor<8x4xf32>) -> tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}
