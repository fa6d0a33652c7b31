// RUN: fusion-opt %s --nn-raise-activation --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-activation --split-input-file --remarks-filter-missed=raise 2>&1 | FileCheck %s --check-prefix=MISS

// CHECK-LABEL: func @silu
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xf16>
// CHECK-NEXT: %[[A:.*]] = nn.silu %[[X]]
// CHECK-NEXT: return %[[A]]
func.func @silu(%x: tensor<?x8xf16>) -> tensor<?x8xf16> {
  %0 = nn.sigmoid %x : (tensor<?x8xf16>) -> tensor<?x8xf16>
  %1 = nn.mul %0, %x : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return %1 : tensor<?x8xf16>
}

// -----

// A gate of another value is no silu.
// CHECK-LABEL: func @glu
// CHECK: nn.sigmoid
// CHECK: nn.mul
// MISS: no product of nn.sigmoid with its input follows
func.func @glu(%x: tensor<?x8xf16>, %y: tensor<?x8xf16>) -> tensor<?x8xf16> {
  %0 = nn.sigmoid %x : (tensor<?x8xf16>) -> tensor<?x8xf16>
  %1 = nn.mul %y, %0 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return %1 : tensor<?x8xf16>
}

// -----

// The sigmoid is read elsewhere too; the silu needs only x.
// CHECK-LABEL: func @silu_extra_use
// CHECK-DAG: nn.sigmoid
// CHECK-DAG: nn.silu
func.func @silu_extra_use(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %0 = nn.sigmoid %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.mul %x, %0 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0, %1 : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// The input is itself a sum: the activation is of the whole of it.
// CHECK-LABEL: func @erf
// CHECK: %[[S:.*]] = nn.add
// CHECK-NEXT: %[[G:.*]] = nn.gelu %[[S]] :
// CHECK-NEXT: return %[[G]]
func.func @erf(%m: tensor<?x8xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %r = nn.constant {value = dense<1.4142135> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %x = nn.add %m, %b : (tensor<?x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  %0 = nn.div %x, %r : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %1 = nn.erf %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = nn.add %1, %one : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %3 = nn.mul %half, %2 : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %4 = nn.mul %x, %3 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %4 : tensor<?x8xf32>
}

// -----

// (x * (1 + erf(x * 0.7071))) * 0.5
// CHECK-LABEL: func @erf_reordered
// CHECK-NEXT: nn.gelu
// CHECK-NEXT: return
func.func @erf_reordered(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %r = nn.constant {value = dense<0.70710678> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %r, %x : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.erf %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = nn.add %one, %1 : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %3 = nn.mul %2, %x : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %4 = nn.mul %3, %half : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  return %4 : tensor<?x8xf32>
}

// -----

// A bare erf of x / sqrt(2) with nothing after it.
// CHECK-LABEL: func @erf_alone
// CHECK: nn.erf
// MISS: no product of nn.erf with its input follows
func.func @erf_alone(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %r = nn.constant {value = dense<0.70710678> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %x, %r : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %1 = nn.erf %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %1 : tensor<?x8xf32>
}

// -----

// GPT-2 in f16: constants as f16 rounds them.
// CHECK-LABEL: func @tanh
// CHECK-NEXT: nn.gelu %{{.*}} {approximate = "tanh"}
// CHECK-NEXT: return
func.func @tanh(%x: tensor<?x8xf16>) -> tensor<?x8xf16> {
  %half = nn.constant {value = dense<0.5> : tensor<f16>} : () -> tensor<f16>
  %three = nn.constant {value = dense<3.0> : tensor<f16>} : () -> tensor<f16>
  %c = nn.constant {value = dense<0.044708251953125> : tensor<f16>} : () -> tensor<f16>
  %s = nn.constant {value = dense<0.7978515625> : tensor<f16>} : () -> tensor<f16>
  %one = nn.constant {value = dense<1.0> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.mul %x, %half : (tensor<?x8xf16>, tensor<f16>) -> tensor<?x8xf16>
  %1 = nn.pow %x, %three : (tensor<?x8xf16>, tensor<f16>) -> tensor<?x8xf16>
  %2 = nn.mul %1, %c : (tensor<?x8xf16>, tensor<f16>) -> tensor<?x8xf16>
  %3 = nn.add %x, %2 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  %4 = nn.mul %3, %s : (tensor<?x8xf16>, tensor<f16>) -> tensor<?x8xf16>
  %5 = nn.tanh %4 : (tensor<?x8xf16>) -> tensor<?x8xf16>
  %6 = nn.add %5, %one : (tensor<?x8xf16>, tensor<f16>) -> tensor<?x8xf16>
  %7 = nn.mul %0, %6 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return %7 : tensor<?x8xf16>
}

// -----

// 0.5 x (1 + tanh(x 0.79788 (1 + 0.044715 x x)))
// CHECK-LABEL: func @tanh_factored
// CHECK-NEXT: nn.gelu %{{.*}} {approximate = "tanh"}
// CHECK-NEXT: return
func.func @tanh_factored(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %c = nn.constant {value = dense<0.044715> : tensor<f32>} : () -> tensor<f32>
  %s = nn.constant {value = dense<0.79788456> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.square %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %1 = nn.mul %c, %0 : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = nn.add %one, %1 : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %3 = nn.mul %x, %s : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %4 = nn.mul %3, %2 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %5 = nn.tanh %4 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %6 = nn.add %one, %5 : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %7 = nn.mul %6, %x : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %8 = nn.mul %half, %7 : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %8 : tensor<?x8xf32>
}

// -----

// Another cubic coefficient is another function; so is a soft cap.
// CHECK-LABEL: func @other_tanh
// CHECK-NOT: nn.gelu
func.func @other_tanh(%x: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %three = nn.constant {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
  %c = nn.constant {value = dense<0.05> : tensor<f32>} : () -> tensor<f32>
  %s = nn.constant {value = dense<0.79788456> : tensor<f32>} : () -> tensor<f32>
  %cap = nn.constant {value = dense<30.0> : tensor<f32>} : () -> tensor<f32>
  %1 = nn.pow %x, %three : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %2 = nn.mul %1, %c : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %3 = nn.add %x, %2 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %4 = nn.mul %3, %s : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %5 = nn.tanh %4 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %6 = nn.div %x, %cap : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %7 = nn.tanh %6 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %8 = nn.mul %7, %cap : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  return %5, %8 : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// CHECK-LABEL: func @quick
// CHECK-NEXT: nn.gelu %{{.*}} {approximate = "quick"}
// CHECK-NEXT: return
func.func @quick(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %c = nn.constant {value = dense<1.702> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %x, %c : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %1 = nn.sigmoid %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = nn.mul %x, %1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %2 : tensor<?x8xf32>
}

// -----

// The casts around an activation in f32 go: it computes in f32 anyway.
// CHECK-LABEL: func @casts_around
// CHECK-NEXT: nn.silu %{{.*}} : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
// CHECK-NEXT: return
func.func @casts_around(%x: tensor<?x8xbf16>) -> tensor<?x8xbf16> {
  %0 = nn.cast %x : (tensor<?x8xbf16>) -> tensor<?x8xf32>
  %1 = nn.sigmoid %0 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = nn.mul %0, %1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %3 = nn.cast %2 : (tensor<?x8xf32>) -> tensor<?x8xbf16>
  return %3 : tensor<?x8xbf16>
}

// -----

// CHECK-LABEL: func @silu_commuted
// CHECK-NEXT: nn.silu
// CHECK-NEXT: return
func.func @silu_commuted(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = nn.sigmoid %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = nn.mul %0, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %1 : tensor<2x8xf32>
}

// -----

// Nobody reads the product.
// CHECK-LABEL: func @silu_dead
// CHECK-NEXT: return
func.func @silu_dead(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = nn.sigmoid %x : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %1 = nn.mul %0, %x : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %x : tensor<2x8xf32>
}

// -----

// The gate is broadcast over other values.
// CHECK-LABEL: func @broadcast_gate
// CHECK: nn.sigmoid
// CHECK-NEXT: nn.mul
// MISS: {{.*}}raise-activation.mlir{{.*}}Missed{{.*}}no product of nn.sigmoid with its input follows
func.func @broadcast_gate(%x: tensor<8xf32>, %y: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %0 = nn.sigmoid %x : (tensor<8xf32>) -> tensor<8xf32>
  %1 = nn.mul %0, %y : (tensor<8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %1 : tensor<2x8xf32>
}

// -----

// x / 2 is read elsewhere too.
// CHECK-LABEL: func @half_product_used
// CHECK: %[[H:.*]] = nn.mul
// CHECK-NEXT: %[[G:.*]] = nn.gelu
// CHECK-NEXT: return %[[G]], %[[H]]
func.func @half_product_used(%x: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %s = nn.constant {value = dense<0.70710677> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %x, %s : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %1 = nn.erf %0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %2 = nn.add %1, %one : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %3 = nn.mul %x, %half : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %4 = nn.mul %3, %2 : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %4, %3 : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

// And so is 1 + erf.
// CHECK-LABEL: func @erf_sum_used
// CHECK: %[[S:.*]] = nn.add
// CHECK: %[[G:.*]] = nn.gelu
// CHECK-NEXT: return %[[G]], %[[S]]
func.func @erf_sum_used(%x: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %s = nn.constant {value = dense<0.70710677> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %x, %s : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %1 = nn.erf %0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %2 = nn.add %1, %one : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %3 = nn.mul %x, %half : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %4 = nn.mul %3, %2 : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %4, %2 : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

// Another scale is another function.
// CHECK-LABEL: func @other_scale
// CHECK-NOT: nn.gelu
// MISS: {{.*}}raise-activation.mlir{{.*}}Missed{{.*}}operand 0 of nn.erf is not a value divided by sqrt(2)
func.func @other_scale(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %s = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %x, %s : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %1 = nn.erf %0 : (tensor<2x8xf32>) -> tensor<2x8xf32>
  %2 = nn.add %1, %one : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %3 = nn.mul %x, %half : (tensor<2x8xf32>, tensor<f32>) -> tensor<2x8xf32>
  %4 = nn.mul %3, %2 : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  return %4 : tensor<2x8xf32>
}

// -----

// PyTorch multiplies 16 bits by numbers in f32 and rounds each product; the activation is of x all the same.
// CHECK-LABEL: func @tanh_of_rounded_products
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xbf16>
// CHECK-NEXT: %[[G:.*]] = nn.gelu %[[X]] {approximate = "tanh"} : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
// CHECK-NEXT: return %[[G]]
func.func @tanh_of_rounded_products(%x: tensor<?x8xbf16>) -> tensor<?x8xbf16> {
  %half = nn.constant {value = dense<0.5> : tensor<bf16>} : () -> tensor<bf16>
  %one = nn.constant {value = dense<1.0> : tensor<bf16>} : () -> tensor<bf16>
  %three = nn.constant {value = dense<3.0> : tensor<bf16>} : () -> tensor<bf16>
  %a = nn.constant {value = dense<0.044715> : tensor<f32>} : () -> tensor<f32>
  %b = nn.constant {value = dense<0.797884583> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %x, %half : (tensor<?x8xbf16>, tensor<bf16>) -> tensor<?x8xbf16>
  %1 = nn.pow %x, %three : (tensor<?x8xbf16>, tensor<bf16>) -> tensor<?x8xbf16>
  %2 = nn.cast %1 : (tensor<?x8xbf16>) -> tensor<?x8xf32>
  %3 = nn.mul %2, %a : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %4 = nn.cast %3 : (tensor<?x8xf32>) -> tensor<?x8xbf16>
  %5 = nn.add %x, %4 : (tensor<?x8xbf16>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  %6 = nn.cast %5 : (tensor<?x8xbf16>) -> tensor<?x8xf32>
  %7 = nn.mul %6, %b : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %8 = nn.cast %7 : (tensor<?x8xf32>) -> tensor<?x8xbf16>
  %9 = nn.tanh %8 : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
  %10 = nn.add %9, %one : (tensor<?x8xbf16>, tensor<bf16>) -> tensor<?x8xbf16>
  %11 = nn.mul %0, %10 : (tensor<?x8xbf16>, tensor<?x8xbf16>) -> tensor<?x8xbf16>
  return %11 : tensor<?x8xbf16>
}

// -----

// What is rounded to a narrower type than that of x stays as it is.
// CHECK-LABEL: func @quick_of_narrowed
// CHECK: nn.sigmoid
// CHECK: nn.mul
func.func @quick_of_narrowed(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %factor = nn.constant {value = dense<1.702> : tensor<bf16>} : () -> tensor<bf16>
  %0 = nn.cast %x : (tensor<?x8xf32>) -> tensor<?x8xbf16>
  %1 = nn.mul %0, %factor : (tensor<?x8xbf16>, tensor<bf16>) -> tensor<?x8xbf16>
  %2 = nn.sigmoid %1 : (tensor<?x8xbf16>) -> tensor<?x8xbf16>
  %3 = nn.cast %2 : (tensor<?x8xbf16>) -> tensor<?x8xf32>
  %4 = nn.mul %x, %3 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %4 : tensor<?x8xf32>
}

// -----

// erf is odd: Keras 3 writes 1 - erf(-x / sqrt(2)).
// CHECK-LABEL: func @erf_of_negated
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xf32>
// CHECK-NEXT: %[[G:.*]] = nn.gelu %[[X]] : (tensor<?x8xf32>) -> tensor<?x8xf32>
// CHECK-NEXT: return %[[G]]
func.func @erf_of_negated(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %root = nn.constant {value = dense<0.707106769> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %x, %half : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %1 = nn.neg %x : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = nn.mul %1, %root : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %3 = nn.erf %2 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %4 = nn.sub %one, %3 : (tensor<f32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %5 = nn.mul %0, %4 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %5 : tensor<?x8xf32>
}

// -----

// 1 + erf(-x / sqrt(2)) is no gelu of x.
// CHECK-LABEL: func @erf_of_negated_added
// CHECK-NOT: nn.gelu
// CHECK: nn.erf
// MISS: {{.*}}raise-activation.mlir{{.*}}Missed{{.*}}no product of nn.erf with its input follows
func.func @erf_of_negated_added(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %half = nn.constant {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %one = nn.constant {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
  %root = nn.constant {value = dense<-0.707106769> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.mul %x, %half : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %1 = nn.mul %x, %root : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %2 = nn.erf %1 : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %3 = nn.add %2, %one : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xf32>
  %4 = nn.mul %0, %3 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %4 : tensor<?x8xf32>
}
