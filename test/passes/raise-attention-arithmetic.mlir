// Masks written as arithmetic on conditions cast to 0 and 1, and probabilities cleared by the mask's condition.
// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-attention --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS
// RUN: fusion-opt %s --nn-raise-attention=assume-finite=false --split-input-file | FileCheck %s --check-prefix=STRICT

// tf.where in tf2onnx: c * s + (1 - c) * L, which is L wherever the score is finite.
// CHECK-LABEL: func @where
// STRICT-LABEL: func @where
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x5x16xf32>, %[[K:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[V:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[C:[a-z0-9]*]]: tensor<2x1x5x7xi1>)
// STRICT-NOT: nn.attention
// STRICT: nn.softmax
// CHECK-DAG: %[[ZERO:.*]] = nn.constant {value = dense<0.000000e+00> : tensor<f32>}
// CHECK-DAG: %[[LOW:.*]] = nn.constant {value = dense<-3.40282347E+38> : tensor<f32>}
// CHECK: %[[M:.*]] = nn.where %[[C]], %[[ZERO]], %[[LOW]]
// CHECK-NEXT: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[V]], %[[M]] {scale = 1.000000e+00 : f32}
// CHECK-NEXT: return %[[A]]
func.func @where(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %c = nn.cast %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %not = nn.not %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xi1>
  %d = nn.cast %not : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %cs = nn.mul %c, %s : (tensor<2x1x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %dl = nn.mul %d, %low : (tensor<2x1x5x7xf32>, tensor<f32>) -> tensor<2x1x5x7xf32>
  %m = nn.add %cs, %dl : (tensor<2x4x5x7xf32>, tensor<2x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// GPT-2 in Transformers: s * c - 1e4 * (1 - c), of a condition that is viewed after its cast.
// CHECK-LABEL: func @one_minus
// STRICT-LABEL: func @one_minus
// STRICT-NOT: nn.attention
// STRICT: nn.softmax
// CHECK: %[[C:.*]] = nn.reshape %{{.*}} : (tensor<5x7xi1>) -> tensor<1x1x5x7xi1>
// CHECK: %[[M:.*]] = nn.where %[[C]],
// CHECK-NEXT: %[[A:.*]] = nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]] {scale = 2.500000e-01 : f32}
// CHECK-NEXT: return %[[A]]
func.func @one_minus(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<5x7xi1>) -> tensor<2x4x5x16xf32> {
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %ten = nn.constant {value = dense<1.0e+4> : tensor<f32>} : () -> tensor<f32>
  %f = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %t = nn.mul %s, %f : (tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %c = nn.cast %keep : (tensor<5x7xi1>) -> tensor<5x7xf32>
  %cv = nn.reshape %c {shape = [1, 1, 5, 7]} : (tensor<5x7xf32>) -> tensor<1x1x5x7xf32>
  %ts = nn.mul %t, %cv : (tensor<2x4x5x7xf32>, tensor<1x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %d = nn.sub %one, %cv : (tensor<f32>, tensor<1x1x5x7xf32>) -> tensor<1x1x5x7xf32>
  %dl = nn.mul %d, %ten : (tensor<1x1x5x7xf32>, tensor<f32>) -> tensor<1x1x5x7xf32>
  %m = nn.sub %ts, %dl : (tensor<2x4x5x7xf32>, tensor<1x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// Both parts are expanded to the scores, which changes nothing.
// CHECK-LABEL: func @expanded
// STRICT-LABEL: func @expanded
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x5x16xf32>, %[[K:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[V:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[C:[a-z0-9]*]]: tensor<2x1x5x7xi1>)
// STRICT-NOT: nn.attention
// STRICT: nn.softmax
// CHECK: %[[M:.*]] = nn.where %[[C]],
// CHECK-NEXT: nn.attention %[[Q]], %[[K]], %[[V]], %[[M]]
func.func @expanded(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %c = nn.cast %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %not = nn.not %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xi1>
  %d = nn.cast %not : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %e = nn.expand %c {shape = [2, 4, 5, 7]} : (tensor<2x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %cs = nn.mul %e, %s : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %dl = nn.mul %d, %low : (tensor<2x1x5x7xf32>, tensor<f32>) -> tensor<2x1x5x7xf32>
  %el = nn.expand %dl {shape = [2, 4, 5, 7]} : (tensor<2x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %m = nn.add %cs, %el : (tensor<2x4x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// Sizes are known, and the condition was folded into two constants.
// CHECK-LABEL: func @constants
// STRICT-LABEL: func @constants
// STRICT-NOT: nn.attention
// STRICT: nn.softmax
// CHECK: %[[C:.*]] = nn.cast %{{.*}} : (tensor<2x3xf32>) -> tensor<2x3xi1>
// CHECK: %[[M:.*]] = nn.where %[[C]],
// CHECK-NEXT: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]]
func.func @constants(%q: tensor<1x4x2x16xf32>, %k: tensor<1x4x3x16xf32>, %v: tensor<1x4x3x16xf32>) -> tensor<1x4x2x16xf32> {
  %c = nn.constant {value = dense<[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
  %l = nn.constant {value = dense<[[0.0, -1.0e+9, -1.0e+9], [0.0, 0.0, -1.0e+9]]> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x2x16xf32>, tensor<1x4x3x16xf32>) -> tensor<1x4x2x3xf32>
  %cs = nn.mul %s, %c : (tensor<1x4x2x3xf32>, tensor<2x3xf32>) -> tensor<1x4x2x3xf32>
  %m = nn.add %cs, %l : (tensor<1x4x2x3xf32>, tensor<2x3xf32>) -> tensor<1x4x2x3xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<1x4x2x3xf32>) -> tensor<1x4x2x3xf32>
  %o = nn.matmul %p, %v : (tensor<1x4x2x3xf32>, tensor<1x4x3x16xf32>) -> tensor<1x4x2x16xf32>
  return %o : tensor<1x4x2x16xf32>
}

// -----

// (1 - c) * L is added: the scores stay, and the condition says that the mask is causal.
// CHECK-LABEL: func @added
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}} {causal = true, scale = 1.000000e+00 : f32}
func.func @added(%q: tensor<2x4x7x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>) -> tensor<2x4x7x16xf32> {
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %z = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %i = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %n = nn.iota %z, %i {size = [7]} : (tensor<i64>, tensor<i64>) -> tensor<7xi64>
  %row = nn.reshape %n {shape = [7, 1]} : (tensor<7xi64>) -> tensor<7x1xi64>
  %keep = nn.greater_equal %row, %n : (tensor<7x1xi64>, tensor<7xi64>) -> tensor<7x7xi1>
  %c = nn.cast %keep : (tensor<7x7xi1>) -> tensor<7x7xf32>
  %d = nn.sub %one, %c : (tensor<f32>, tensor<7x7xf32>) -> tensor<7x7xf32>
  %dl = nn.mul %d, %low : (tensor<7x7xf32>, tensor<f32>) -> tensor<7x7xf32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x7x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x7x7xf32>
  %m = nn.add %s, %dl : (tensor<2x4x7x7xf32>, tensor<7x7xf32>) -> tensor<2x4x7x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x7x7xf32>) -> tensor<2x4x7x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x7x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x7x16xf32>
  return %o : tensor<2x4x7x16xf32>
}

// -----

// Keras's Softmax layer: what the mask hides is cleared again, so that rows that see no key are zeros.
// CHECK-LABEL: func @guard
// STRICT-LABEL: func @guard
// CHECK-SAME: (%[[Q:[a-z0-9]*]]: tensor<2x4x5x16xf32>, %[[K:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[V:[a-z0-9]*]]: tensor<2x4x7x16xf32>, %[[C:[a-z0-9]*]]: tensor<2x1x5x7xi1>)
// STRICT-NOT: nn.attention
// STRICT: nn.softmax
// CHECK-NEXT: %[[A:.*]] = nn.attention %[[Q]], %[[K]], %[[V]], %[[C]] {scale = 1.000000e+00 : f32, zero_masked_rows = true}
// CHECK-NEXT: return %[[A]]
func.func @guard(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %m = nn.where %keep, %s, %low : (tensor<2x1x5x7xi1>, tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %g = nn.where %keep, %p, %zero : (tensor<2x1x5x7xi1>, tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %g, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// The same as arithmetic, with a bias below the mask.
// CHECK-LABEL: func @guard_as_arithmetic
// STRICT-LABEL: func @guard_as_arithmetic
// STRICT-NOT: nn.attention
// STRICT: nn.softmax
// CHECK: %[[M:.*]] = nn.where %{{.*}}, %{{.*}}, %{{.*}} : (tensor<2x1x5x7xi1>, tensor<1x4x1x7xf32>, tensor<f32>)
// CHECK-NEXT: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[M]] {scale = 1.000000e+00 : f32, zero_masked_rows = true}
func.func @guard_as_arithmetic(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>, %bias: tensor<1x4x1x7xf32>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %sb = nn.add %s, %bias : (tensor<2x4x5x7xf32>, tensor<1x4x1x7xf32>) -> tensor<2x4x5x7xf32>
  %c = nn.cast %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %not = nn.not %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xi1>
  %d = nn.cast %not : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %cs = nn.mul %c, %sb : (tensor<2x1x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %dl = nn.mul %d, %low : (tensor<2x1x5x7xf32>, tensor<f32>) -> tensor<2x1x5x7xf32>
  %m = nn.add %cs, %dl : (tensor<2x4x5x7xf32>, tensor<2x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %cp = nn.mul %c, %p : (tensor<2x1x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %dz = nn.mul %d, %zero : (tensor<2x1x5x7xf32>, tensor<f32>) -> tensor<2x1x5x7xf32>
  %g = nn.add %cp, %dz : (tensor<2x4x5x7xf32>, tensor<2x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %g, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// Folded into constants, where the first query sees no key.
// CHECK-LABEL: func @guard_of_constants
// STRICT-LABEL: func @guard_of_constants
// STRICT-NOT: nn.attention
// STRICT: nn.softmax
// CHECK: %[[C:.*]] = nn.cast %{{.*}} : (tensor<2x3xf32>) -> tensor<2x3xi1>
// CHECK-NEXT: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[C]] {scale = 1.000000e+00 : f32, zero_masked_rows = true}
func.func @guard_of_constants(%q: tensor<1x4x2x16xf32>, %k: tensor<1x4x3x16xf32>, %v: tensor<1x4x3x16xf32>) -> tensor<1x4x2x16xf32> {
  %c = nn.constant {value = dense<[[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
  %l = nn.constant {value = dense<[[-1.0e+9, -1.0e+9, -1.0e+9], [0.0, 0.0, -1.0e+9]]> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x2x16xf32>, tensor<1x4x3x16xf32>) -> tensor<1x4x2x3xf32>
  %cs = nn.mul %s, %c : (tensor<1x4x2x3xf32>, tensor<2x3xf32>) -> tensor<1x4x2x3xf32>
  %m = nn.add %cs, %l : (tensor<1x4x2x3xf32>, tensor<2x3xf32>) -> tensor<1x4x2x3xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<1x4x2x3xf32>) -> tensor<1x4x2x3xf32>
  %g = nn.mul %p, %c : (tensor<1x4x2x3xf32>, tensor<2x3xf32>) -> tensor<1x4x2x3xf32>
  %o = nn.matmul %g, %v : (tensor<1x4x2x3xf32>, tensor<1x4x3x16xf32>) -> tensor<1x4x2x16xf32>
  return %o : tensor<1x4x2x16xf32>
}

// -----

// 0 * -inf is NaN, so that this is no choice.
// CHECK-LABEL: func @infinite
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-arithmetic.mlir{{.*}}Missed{{.*}}neither operand of the mask's nn.add leads to q kᵀ
func.func @infinite(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %c = nn.cast %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %not = nn.not %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xi1>
  %d = nn.cast %not : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %cs = nn.mul %c, %s : (tensor<2x1x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %dl = nn.mul %d, %low : (tensor<2x1x5x7xf32>, tensor<f32>) -> tensor<2x1x5x7xf32>
  %m = nn.add %cs, %dl : (tensor<2x4x5x7xf32>, tensor<2x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// -10 masks nothing.
// CHECK-LABEL: func @small
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-arithmetic.mlir{{.*}}Missed{{.*}}neither operand of the mask's nn.add leads to q kᵀ
func.func @small(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<-10.0> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %c = nn.cast %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %not = nn.not %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xi1>
  %d = nn.cast %not : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %cs = nn.mul %c, %s : (tensor<2x1x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %dl = nn.mul %d, %low : (tensor<2x1x5x7xf32>, tensor<f32>) -> tensor<2x1x5x7xf32>
  %m = nn.add %cs, %dl : (tensor<2x4x5x7xf32>, tensor<2x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// The number stands where the scores stay.
// CHECK-LABEL: func @same_condition
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-arithmetic.mlir{{.*}}Missed{{.*}}neither operand of the mask's nn.add leads to q kᵀ
func.func @same_condition(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %c = nn.cast %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %not = nn.not %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xi1>
  %d = nn.cast %keep : (tensor<2x1x5x7xi1>) -> tensor<2x1x5x7xf32>
  %cs = nn.mul %c, %s : (tensor<2x1x5x7xf32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %dl = nn.mul %d, %low : (tensor<2x1x5x7xf32>, tensor<f32>) -> tensor<2x1x5x7xf32>
  %m = nn.add %cs, %dl : (tensor<2x4x5x7xf32>, tensor<2x1x5x7xf32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %p, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// The constants do not say the same.
// CHECK-LABEL: func @other_constants
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-arithmetic.mlir{{.*}}Missed{{.*}}neither operand of the mask's nn.add leads to q kᵀ
func.func @other_constants(%q: tensor<1x4x2x16xf32>, %k: tensor<1x4x3x16xf32>, %v: tensor<1x4x3x16xf32>) -> tensor<1x4x2x16xf32> {
  %c = nn.constant {value = dense<[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
  %l = nn.constant {value = dense<[[0.0, -1.0e+9, -1.0e+9], [0.0, -1.0e+9, -1.0e+9]]> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<1x4x2x16xf32>, tensor<1x4x3x16xf32>) -> tensor<1x4x2x3xf32>
  %cs = nn.mul %s, %c : (tensor<1x4x2x3xf32>, tensor<2x3xf32>) -> tensor<1x4x2x3xf32>
  %m = nn.add %cs, %l : (tensor<1x4x2x3xf32>, tensor<2x3xf32>) -> tensor<1x4x2x3xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<1x4x2x3xf32>) -> tensor<1x4x2x3xf32>
  %o = nn.matmul %p, %v : (tensor<1x4x2x3xf32>, tensor<1x4x3x16xf32>) -> tensor<1x4x2x16xf32>
  return %o : tensor<1x4x2x16xf32>
}

// -----

// Cleared where another condition says.
// CHECK-LABEL: func @other_guard
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-arithmetic.mlir{{.*}}Missed{{.*}}the probabilities go to nn.where, not to an nn.matmul
func.func @other_guard(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>, %other: tensor<2x1x5x7xi1>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %m = nn.where %keep, %s, %low : (tensor<2x1x5x7xi1>, tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %g = nn.where %other, %p, %zero : (tensor<2x1x5x7xi1>, tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %g, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// Cleared where the mask keeps.
// CHECK-LABEL: func @inverted_guard
// CHECK-NOT: nn.attention
// CHECK: nn.softmax
// MISS: {{.*}}raise-attention-arithmetic.mlir{{.*}}Missed{{.*}}the probabilities go to nn.where, not to an nn.matmul
func.func @inverted_guard(%q: tensor<2x4x5x16xf32>, %k: tensor<2x4x7x16xf32>, %v: tensor<2x4x7x16xf32>, %keep: tensor<2x1x5x7xi1>) -> tensor<2x4x5x16xf32> {
  %low = nn.constant {value = dense<-1.0e+9> : tensor<f32>} : () -> tensor<f32>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x5x16xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x7xf32>
  %m = nn.where %keep, %s, %low : (tensor<2x1x5x7xi1>, tensor<2x4x5x7xf32>, tensor<f32>) -> tensor<2x4x5x7xf32>
  %p = nn.softmax %m {axis = 3 : i64} : (tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %g = nn.where %keep, %zero, %p : (tensor<2x1x5x7xi1>, tensor<f32>, tensor<2x4x5x7xf32>) -> tensor<2x4x5x7xf32>
  %o = nn.matmul %g, %v : (tensor<2x4x5x7xf32>, tensor<2x4x7x16xf32>) -> tensor<2x4x5x16xf32>
  return %o : tensor<2x4x5x16xf32>
}

// -----

// The upper triangle of -inf is causal from the first diagonal on; with the main one it hides a query's own key.
// CHECK-LABEL: func @triangle
// CHECK: nn.attention %arg0, %arg1, %arg2 {causal = true,
// CHECK: nn.attention %arg0, %arg1, %arg2, %{{.*}} {scale
func.func @triangle(%q: tensor<2x4x?x16xf32> {nn.dims = [2, 4, "s", 16]}, %k: tensor<2x4x?x16xf32> {nn.dims = [2, 4, "s", 16]}, %v: tensor<2x4x?x16xf32> {nn.dims = [2, 4, "s", 16]}) -> (tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>) {
  %low = nn.constant {value = dense<0xFF800000> : tensor<f32>} : () -> tensor<f32>
  %full = nn.expand %low {shape = ["s", "s"]} : (tensor<f32>) -> tensor<?x?xf32>
  %m = nn.trilu %full {upper = true, k = 1 : i64} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %n = nn.trilu %full {upper = true, k = 0 : i64} : (tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = nn.matmul %q, %k {transpose_b = true} : (tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>) -> tensor<2x4x?x?xf32>
  %0 = nn.add %s, %m : (tensor<2x4x?x?xf32>, tensor<?x?xf32>) -> tensor<2x4x?x?xf32>
  %1 = nn.softmax %0 {axis = 3 : i64} : (tensor<2x4x?x?xf32>) -> tensor<2x4x?x?xf32>
  %2 = nn.matmul %1, %v : (tensor<2x4x?x?xf32>, tensor<2x4x?x16xf32>) -> tensor<2x4x?x16xf32>
  %3 = nn.add %s, %n : (tensor<2x4x?x?xf32>, tensor<?x?xf32>) -> tensor<2x4x?x?xf32>
  %4 = nn.softmax %3 {axis = 3 : i64} : (tensor<2x4x?x?xf32>) -> tensor<2x4x?x?xf32>
  %5 = nn.matmul %4, %v : (tensor<2x4x?x?xf32>, tensor<2x4x?x16xf32>) -> tensor<2x4x?x16xf32>
  return %2, %5 : tensor<2x4x?x16xf32>, tensor<2x4x?x16xf32>
}
