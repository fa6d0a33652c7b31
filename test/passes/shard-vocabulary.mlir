// RUN: fusion-opt %s --nn-shard='ranks=2 vocabulary' --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-shard=ranks=2 --split-input-file | FileCheck %s --check-prefix=WHOLE
// RUN: fusion-opt %s --nn-shard='ranks=2 vocabulary' --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// One table for embedding and head: rows of the one are columns of the other. Ids of other ranks give zeros; the head's
// columns are a result that is divided.
// CHECK-LABEL: func @tied
// CHECK-SAME: -> (tensor<?x6xf16> {{.*}}nn.shard = array<i64: 1, 2>
// CHECK: %[[SHARD:.*]] = nn.weight {{.*}}starts = ["6*tp_rank", 0], whole = array<i64: 12, 4>} : () -> tensor<6x4xf16>
// CHECK: %[[ALL:.*]] = nn.dim_constant {values = [12]}
// CHECK: %[[FROM_END:.*]] = nn.add %[[IDS:.*]], %[[ALL]]
// CHECK: %[[WRAPPED:.*]] = nn.where %{{.*}}, %[[FROM_END]], %[[IDS]]
// CHECK: %[[START:.*]] = nn.dim_constant {values = ["6*tp_rank"]}
// CHECK: %[[ROW:.*]] = nn.sub %[[WRAPPED]], %[[START]]
// CHECK: nn.greater_equal %[[ROW]], %[[ZERO:.*]] :
// CHECK: %[[ROWS:.*]] = nn.dim_constant {values = [6]}
// CHECK: nn.less %[[ROW]], %[[ROWS]]
// CHECK: %[[HERE:.*]] = nn.and
// CHECK: %[[SAFE:.*]] = nn.where %[[HERE]], %[[ROW]], %[[ZERO]]
// CHECK: %[[FOUND:.*]] = nn.gather %[[SHARD]], %[[SAFE]]
// CHECK: %[[PART:.*]] = nn.where %{{.*}}, %[[FOUND]]
// CHECK: %[[X:.*]] = nn.all_reduce %[[PART]]
// CHECK: nn.matmul %[[X]], %[[SHARD]] {transpose_b = true}
// CHECK-NOT: nn.all_reduce
// WHOLE-LABEL: func @tied
// WHOLE-NOT: tp_rank
// WHOLE: return
func.func @tied(%ids: tensor<?xi64> {nn.dims = ["n"]}) -> tensor<?x12xf16> {
  %w = nn.weight {name = "w", path = "w.bin", offset = 0 : i64, length = 96 : i64} : () -> tensor<12x4xf16>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<12x4xf16>, tensor<?xi64>) -> tensor<?x4xf16>
  %y = nn.matmul %x, %w {transpose_b = true} : (tensor<?x4xf16>, tensor<12x4xf16>) -> tensor<?x12xf16>
  return %y : tensor<?x12xf16>
}

// -----

// Two tables; that of positions has no vocabulary's rows and stays whole.
// CHECK-LABEL: func @untied
// CHECK-COUNT-1: nn.all_reduce
// CHECK-NOT: nn.all_reduce
// CHECK: return
// MISS: [Missed] shard {{.*}}the rows of its table stay whole: nn.gather at {{.*}} looks up in it, and no result of the graph has as many columns
func.func @untied(%ids: tensor<?xi64> {nn.dims = ["n"]}, %at: tensor<?xi64> {nn.dims = ["n"]}) -> tensor<?x12xf16> {
  %w = nn.weight {name = "w", path = "w.bin", offset = 0 : i64, length = 96 : i64} : () -> tensor<12x4xf16>
  %p = nn.weight {name = "p", path = "w.bin", offset = 96 : i64, length = 64 : i64} : () -> tensor<8x4xf16>
  %h = nn.weight {name = "h", path = "w.bin", offset = 160 : i64, length = 96 : i64} : () -> tensor<4x12xf16>
  %x = nn.gather %w, %ids {axis = 0 : i64} : (tensor<12x4xf16>, tensor<?xi64>) -> tensor<?x4xf16>
  %z = nn.gather %p, %at {axis = 0 : i64} : (tensor<8x4xf16>, tensor<?xi64>) -> tensor<?x4xf16>
  %s = nn.add %x, %z : (tensor<?x4xf16>, tensor<?x4xf16>) -> tensor<?x4xf16>
  %y = nn.matmul %s, %h : (tensor<?x4xf16>, tensor<4x12xf16>) -> tensor<?x12xf16>
  return %y : tensor<?x12xf16>
}

// -----

// Each rank finds the largest of its columns; they tell each other its value and its place among all columns.
// CHECK-LABEL: func @likeliest
// CHECK: %[[LOGITS:.*]] = nn.matmul {{.*}} -> tensor<?x6xf16>
// CHECK: %[[PLACE:.*]] = nn.arg_max %[[LOGITS]] {axis = 1 : i64, keepdims = true} : (tensor<?x6xf16>) -> tensor<?x1xi64>
// CHECK: %[[FIRST:.*]] = nn.dim_constant {values = ["6*tp_rank"]}
// CHECK: %[[NUMBER:.*]] = nn.add %[[PLACE]], %[[FIRST]]
// CHECK: %[[LARGEST:.*]] = nn.gather_elements %[[LOGITS]], %[[PLACE]]
// CHECK: %[[OWN:.*]] = nn.concat {{.*}} -> tensor<?x4xf32>
// CHECK: %[[ALL:.*]] = nn.all_reduce %[[OWN]]
// CHECK-DAG: %[[NUMBERS:.*]] = nn.slice %[[ALL]] {{.*}}starts = [0, 2]
// CHECK-DAG: %[[VALUES:.*]] = nn.slice %[[ALL]] {{.*}}starts = [0, 0]
// CHECK: %[[RANK:.*]] = nn.arg_max %[[VALUES]]
// CHECK: nn.gather_elements %[[NUMBERS]], %[[RANK]]
// WHOLE-LABEL: func @likeliest
// WHOLE-NOT: tp_rank
// WHOLE: return
func.func @likeliest(%x: tensor<?x4xf16> {nn.dims = ["n", 4]}) -> (tensor<?x12xf16>, tensor<?xi64>) {
  %w = nn.weight {name = "w", path = "w.bin", offset = 0 : i64, length = 96 : i64} : () -> tensor<4x12xf16>
  %y = nn.matmul %x, %w : (tensor<?x4xf16>, tensor<4x12xf16>) -> tensor<?x12xf16>
  %i = nn.arg_max %y {axis = 1 : i64, keepdims = false} : (tensor<?x12xf16>) -> tensor<?xi64>
  return %y, %i : tensor<?x12xf16>, tensor<?xi64>
}

// -----

// Ranks tell each other f32, which does not hold these.
// CHECK-LABEL: func @of_doubles
// CHECK-NOT: tp_rank
// CHECK: return
// MISS: its columns stay whole: nn.arg_max{{.*}} finds the largest along it
func.func @of_doubles(%x: tensor<?x4xf64> {nn.dims = ["n", 4]}) -> (tensor<?x12xf64>, tensor<?xi64>) {
  %w = nn.weight {name = "w", path = "w.bin", offset = 0 : i64, length = 384 : i64} : () -> tensor<4x12xf64>
  %y = nn.matmul %x, %w : (tensor<?x4xf64>, tensor<4x12xf64>) -> tensor<?x12xf64>
  %i = nn.arg_max %y {axis = 1 : i64, keepdims = false} : (tensor<?x12xf64>) -> tensor<?xi64>
  return %y, %i : tensor<?x12xf64>, tensor<?xi64>
}
