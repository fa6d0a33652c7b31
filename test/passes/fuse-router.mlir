// RUN: fusion-opt %s --fuse-router --split-input-file 2>/dev/null | FileCheck %s
// RUN: fusion-opt %s --fuse-router --split-input-file 2>&1 >/dev/null | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: @softmax_first
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.softmax
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK-NEXT: nn.reduce
// CHECK-NEXT: nn.div
// CHECK-NEXT: nn.cast
// CHECK-NEXT: fusion.yield
func.func @softmax_first(%x: tensor<?x128xf32>) -> (tensor<?x8xi64>, tensor<?x8xbf16>) {
  %s = nn.softmax %x {axis = 1 : i64} : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %i = nn.top_k %s {axis = 1 : i64, k = [8]} : (tensor<?x128xf32>) -> tensor<?x8xi64>
  %v = nn.gather_elements %s, %i {axis = 1 : i64} : (tensor<?x128xf32>, tensor<?x8xi64>) -> tensor<?x8xf32>
  %t = nn.reduce %v {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<?x8xf32>) -> tensor<?x1xf32>
  %d = nn.div %v, %t : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %w = nn.cast %d : (tensor<?x8xf32>) -> tensor<?x8xbf16>
  return %i, %w : tensor<?x8xi64>, tensor<?x8xbf16>
}

// -----

// The softmax of all scores has another reader: it stays outside.
// CHECK-LABEL: @scores_read_elsewhere
// CHECK: nn.softmax
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK-NEXT: nn.softmax
// CHECK-NEXT: fusion.yield
func.func @scores_read_elsewhere(%x: tensor<?x16xf32>) -> (tensor<?x4xi64>, tensor<?x4xf32>, tensor<?x16xf32>) {
  %s = nn.softmax %x {axis = 1 : i64} : (tensor<?x16xf32>) -> tensor<?x16xf32>
  %i = nn.top_k %s {axis = 1 : i64, k = [4]} : (tensor<?x16xf32>) -> tensor<?x4xi64>
  %v = nn.gather_elements %s, %i {axis = 1 : i64} : (tensor<?x16xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
  %w = nn.softmax %v {axis = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %i, %w, %s : tensor<?x4xi64>, tensor<?x4xf32>, tensor<?x16xf32>
}

// -----

// The matmul of the scores, with its bias and cast.
// CHECK-LABEL: @with_matmul
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.cast
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK-NEXT: nn.softmax
// CHECK-NEXT: fusion.yield
func.func @with_matmul(%x: tensor<?x64xbf16> {nn.dims = ["rows", 64]}, %w: tensor<32x64xbf16>, %b: tensor<32xbf16>)
    -> (tensor<?x4xi64>, tensor<?x4xf32>) {
  %p = nn.matmul %x, %w {transpose_b = true} : (tensor<?x64xbf16>, tensor<32x64xbf16>) -> tensor<?x32xbf16>
  %q = nn.add %p, %b : (tensor<?x32xbf16>, tensor<32xbf16>) -> tensor<?x32xbf16>
  %s = nn.cast %q : (tensor<?x32xbf16>) -> tensor<?x32xf32>
  %i = nn.top_k %s {axis = 1 : i64, k = [4]} : (tensor<?x32xf32>) -> tensor<?x4xi64>
  %v = nn.gather_elements %s, %i {axis = 1 : i64} : (tensor<?x32xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
  %r = nn.softmax %v {axis = 1 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return %i, %r : tensor<?x4xi64>, tensor<?x4xf32>
}

// -----

// A result of the function: the matmul stays outside.
// CHECK-LABEL: @logits_leave
// CHECK: nn.matmul
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.top_k
func.func @logits_leave(%x: tensor<?x64xf32>, %w: tensor<32x64xf32>) -> (tensor<?x4xi64>, tensor<?x4xf32>, tensor<?x32xf32>) {
  %s = nn.matmul %x, %w {transpose_b = true} : (tensor<?x64xf32>, tensor<32x64xf32>) -> tensor<?x32xf32>
  %i = nn.top_k %s {axis = 1 : i64, k = [4]} : (tensor<?x32xf32>) -> tensor<?x4xi64>
  %v = nn.gather_elements %s, %i {axis = 1 : i64} : (tensor<?x32xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
  return %i, %v, %s : tensor<?x4xi64>, tensor<?x4xf32>, tensor<?x32xf32>
}

// -----

// CHECK-LABEL: @places_alone
// CHECK-NOT: fusion.group
// MISS: router missed {{.*}}nobody takes the scores that nn.top_k finds
func.func @places_alone(%x: tensor<?x16xf32>) -> tensor<?x4xi64> {
  %i = nn.top_k %x {axis = 1 : i64, k = [4]} : (tensor<?x16xf32>) -> tensor<?x4xi64>
  return %i : tensor<?x4xi64>
}

// -----

// CHECK-LABEL: @half_precision
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK-NEXT: fusion.yield
func.func @half_precision(%x: tensor<?x16xbf16>) -> (tensor<?x4xi64>, tensor<?x4xbf16>) {
  %i = nn.top_k %x {axis = 1 : i64, k = [4]} : (tensor<?x16xbf16>) -> tensor<?x4xi64>
  %v = nn.gather_elements %x, %i {axis = 1 : i64} : (tensor<?x16xbf16>, tensor<?x4xi64>) -> tensor<?x4xbf16>
  return %i, %v : tensor<?x4xi64>, tensor<?x4xbf16>
}

// -----

// A sum that is rounded to bf16 before the quotient stays outside.
// CHECK-LABEL: @half_precision_quotient
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK-NEXT: fusion.yield
// CHECK: nn.reduce
// CHECK: nn.div
func.func @half_precision_quotient(%x: tensor<?x16xbf16>) -> (tensor<?x4xi64>, tensor<?x4xbf16>) {
  %i = nn.top_k %x {axis = 1 : i64, k = [4]} : (tensor<?x16xbf16>) -> tensor<?x4xi64>
  %v = nn.gather_elements %x, %i {axis = 1 : i64} : (tensor<?x16xbf16>, tensor<?x4xi64>) -> tensor<?x4xbf16>
  %t = nn.reduce %v {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<?x4xbf16>) -> tensor<?x1xbf16>
  %d = nn.div %v, %t : (tensor<?x4xbf16>, tensor<?x1xbf16>) -> tensor<?x4xbf16>
  return %i, %d : tensor<?x4xi64>, tensor<?x4xbf16>
}

// -----

// DeepSeek-V3: experts are chosen by their scores and a bias; the weights are the scores, and the sum has a
// number more.
// CHECK-LABEL: @biased
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.sigmoid
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK-NEXT: nn.reduce
// CHECK: nn.add
// CHECK-NEXT: nn.div
// CHECK: nn.mul
// CHECK-NEXT: fusion.yield
func.func @biased(%x: tensor<?x64xf32> {nn.dims = ["rows", 64]}, %w: tensor<32x64xf32>, %b: tensor<32xf32>)
    -> (tensor<?x4xi64>, tensor<?x4xf32>) {
  %few = nn.constant {value = dense<1.0e-20> : tensor<f32>} : () -> tensor<f32>
  %factor = nn.constant {value = dense<2.5> : tensor<f32>} : () -> tensor<f32>
  %p = nn.matmul %x, %w {transpose_b = true} : (tensor<?x64xf32>, tensor<32x64xf32>) -> tensor<?x32xf32>
  %s = nn.sigmoid %p : (tensor<?x32xf32>) -> tensor<?x32xf32>
  %c = nn.add %s, %b : (tensor<?x32xf32>, tensor<32xf32>) -> tensor<?x32xf32>
  %i = nn.top_k %c {axis = 1 : i64, k = [4]} : (tensor<?x32xf32>) -> tensor<?x4xi64>
  %v = nn.gather_elements %s, %i {axis = 1 : i64} : (tensor<?x32xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
  %t = nn.reduce %v {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<?x4xf32>) -> tensor<?x1xf32>
  %e = nn.add %t, %few : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %d = nn.div %v, %e : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32>
  %r = nn.mul %d, %factor : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32>
  return %i, %r : tensor<?x4xi64>, tensor<?x4xf32>
}

// -----

// The scores with their bias have another reader; what is added has a number for each row and score.
// CHECK-LABEL: @no_bias_of_experts
// CHECK: nn.add
// CHECK: nn.top_k
// CHECK: nn.add
// CHECK: nn.top_k
// MISS: router missed {{.*}}nobody takes the scores that nn.top_k finds
// MISS: router missed {{.*}}what is added to the scores is not a number of each expert
func.func @no_bias_of_experts(%x: tensor<4x16xf32>, %b: tensor<16xf32>, %m: tensor<4x16xf32>)
    -> (tensor<4x2xi64>, tensor<4x2xf32>, tensor<4x16xf32>, tensor<4x2xi64>, tensor<4x2xf32>) {
  %c = nn.add %x, %b : (tensor<4x16xf32>, tensor<16xf32>) -> tensor<4x16xf32>
  %i = nn.top_k %c {axis = 1 : i64, k = [2]} : (tensor<4x16xf32>) -> tensor<4x2xi64>
  %v = nn.gather_elements %x, %i {axis = 1 : i64} : (tensor<4x16xf32>, tensor<4x2xi64>) -> tensor<4x2xf32>
  %d = nn.add %x, %m : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x16xf32>
  %j = nn.top_k %d {axis = 1 : i64, k = [2]} : (tensor<4x16xf32>) -> tensor<4x2xi64>
  %u = nn.gather_elements %x, %j {axis = 1 : i64} : (tensor<4x16xf32>, tensor<4x2xi64>) -> tensor<4x2xf32>
  return %i, %v, %c, %j, %u : tensor<4x2xi64>, tensor<4x2xf32>, tensor<4x16xf32>, tensor<4x2xi64>, tensor<4x2xf32>
}

// -----

// DeepSeek-V3 with limited groups: experts are chosen from the best groups by their scores and a bias.
// CHECK-LABEL: @limited
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.sigmoid
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.limit_groups
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK-NEXT: nn.reduce
// CHECK-NEXT: nn.div
// CHECK-NEXT: fusion.yield
func.func @limited(%x: tensor<?x64xf32> {nn.dims = ["rows", 64]}, %w: tensor<32x64xf32>, %b: tensor<32xf32>)
    -> (tensor<?x4xi64>, tensor<?x4xf32>) {
  %p = nn.matmul %x, %w {transpose_b = true} : (tensor<?x64xf32>, tensor<32x64xf32>) -> tensor<?x32xf32>
  %s = nn.sigmoid %p : (tensor<?x32xf32>) -> tensor<?x32xf32>
  %c = nn.add %s, %b : (tensor<?x32xf32>, tensor<32xf32>) -> tensor<?x32xf32>
  %l = nn.limit_groups %c {groups = 8 : i64, kept = 4 : i64, summed = 2 : i64, other = 0xFF800000 : f32} : (tensor<?x32xf32>) -> tensor<?x32xf32>
  %i = nn.top_k %l {axis = 1 : i64, k = [4]} : (tensor<?x32xf32>) -> tensor<?x4xi64>
  %v = nn.gather_elements %s, %i {axis = 1 : i64} : (tensor<?x32xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
  %t = nn.reduce %v {kind = "sum", axes = array<i64: 1>, keepdims = true} : (tensor<?x4xf32>) -> tensor<?x1xf32>
  %d = nn.div %v, %t : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32>
  return %i, %d : tensor<?x4xi64>, tensor<?x4xf32>
}

// -----

// DeepSeek-V2: the weights are what the limit leaves; the softmax has no other reader.
// CHECK-LABEL: @limited_weights
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.matmul
// CHECK-NEXT: nn.softmax
// CHECK-NEXT: nn.limit_groups
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK: nn.mul
// CHECK-NEXT: fusion.yield
func.func @limited_weights(%x: tensor<?x64xf32> {nn.dims = ["rows", 64]}, %w: tensor<32x64xf32>)
    -> (tensor<?x4xi64>, tensor<?x4xf32>) {
  %factor = nn.constant {value = dense<2.5> : tensor<f32>} : () -> tensor<f32>
  %p = nn.matmul %x, %w {transpose_b = true} : (tensor<?x64xf32>, tensor<32x64xf32>) -> tensor<?x32xf32>
  %s = nn.softmax %p {axis = 1 : i64} : (tensor<?x32xf32>) -> tensor<?x32xf32>
  %l = nn.limit_groups %s {groups = 8 : i64, kept = 3 : i64, summed = 1 : i64, other = 0.0 : f32} : (tensor<?x32xf32>) -> tensor<?x32xf32>
  %i = nn.top_k %l {axis = 1 : i64, k = [4]} : (tensor<?x32xf32>) -> tensor<?x4xi64>
  %v = nn.gather_elements %l, %i {axis = 1 : i64} : (tensor<?x32xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
  %d = nn.mul %v, %factor : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32>
  return %i, %d : tensor<?x4xi64>, tensor<?x4xf32>
}

// -----

// What the limit leaves has another reader: the limit stays outside. There are more groups than a warp has
// lanes.
// CHECK-LABEL: @limit_outside
// CHECK: nn.limit_groups
// CHECK: fusion.group "router" schedule "router"
// CHECK-NEXT: nn.top_k
// CHECK-NEXT: nn.gather_elements
// CHECK-NEXT: fusion.yield
// CHECK: nn.limit_groups
// CHECK-NOT: fusion.group
// MISS: router missed {{.*}}more than 32 groups, or 1024 elements
func.func @limit_outside(%s: tensor<?x32xf32>, %z: tensor<?x80xf32>)
    -> (tensor<?x4xi64>, tensor<?x4xf32>, tensor<?x32xf32>, tensor<?x4xi64>, tensor<?x4xf32>) {
  %l = nn.limit_groups %s {groups = 8 : i64, kept = 3 : i64, summed = 1 : i64, other = 0.0 : f32} : (tensor<?x32xf32>) -> tensor<?x32xf32>
  %i = nn.top_k %l {axis = 1 : i64, k = [4]} : (tensor<?x32xf32>) -> tensor<?x4xi64>
  %v = nn.gather_elements %l, %i {axis = 1 : i64} : (tensor<?x32xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
  %m = nn.limit_groups %z {groups = 40 : i64, kept = 3 : i64, summed = 1 : i64, other = 0.0 : f32} : (tensor<?x80xf32>) -> tensor<?x80xf32>
  %j = nn.top_k %m {axis = 1 : i64, k = [4]} : (tensor<?x80xf32>) -> tensor<?x4xi64>
  %u = nn.gather_elements %m, %j {axis = 1 : i64} : (tensor<?x80xf32>, tensor<?x4xi64>) -> tensor<?x4xf32>
  return %i, %v, %l, %j, %u : tensor<?x4xi64>, tensor<?x4xf32>, tensor<?x32xf32>, tensor<?x4xi64>, tensor<?x4xf32>
}
