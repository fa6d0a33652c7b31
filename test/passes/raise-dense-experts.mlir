// RUN: fusion-opt %s --nn-raise-dense-experts --nn-stack-weights --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-dense-experts --split-input-file --remarks-filter-missed=raise --remarks-filter-passed=raise 2>&1 | FileCheck %s --check-prefix=MISS
// RUN: fusion-opt %s --nn-raise-dense-experts="assume-finite=false" --split-input-file | FileCheck %s --check-prefix=STRICT

// Every expert on every row. Its weights are the parts of one weight, its bias is gathered.
// CHECK-LABEL: func @dense
// CHECK-SAME: (%[[X:[a-z0-9]*]]: tensor<?x8xf16> {{.*}}, %{{[a-z0-9]*}}: tensor<?x3xf16> {{.*}}, %[[R:[a-z0-9]*]]: tensor<?x2xf16>
// CHECK-NEXT: %[[I:.*]] = nn.top_k
// CHECK-NEXT: %[[ROW:.*]] = nn.reshape %[[X]] {shape = ["t", 1, 8]}
// CHECK-NEXT: %[[U:.*]] = nn.weight {length = 288 : i64, name = "u0 and 2 more", offset = 0 : i64, part_offsets = array<i64: 0, 256, 512>, part_paths = ["w.bin", "w.bin", "w.bin"], path = "w.bin"} : () -> tensor<3x6x8xf16>
// CHECK-NEXT: %[[H:.*]] = nn.expert_matmul %[[ROW]], %[[U]], %[[I]] {transpose_w = true} : (tensor<?x1x8xf16>, tensor<3x6x8xf16>, tensor<?x2xi64>) -> tensor<?x2x6xf16>
// CHECK-NEXT: %[[C:.*]] = nn.weight {{.*}} : () -> tensor<3x6xf16>
// CHECK-NEXT: %[[CI:.*]] = nn.gather %[[C]], %[[I]] {axis = 0 : i64}
// CHECK-NEXT: %[[B:.*]] = nn.add %[[H]], %[[CI]]
// CHECK-NEXT: %[[S:.*]] = nn.silu %[[B]]
// CHECK-NEXT: %[[D:.*]] = nn.weight {{.*}} : () -> tensor<3x6x8xf16>
// CHECK-NEXT: %[[Y:.*]] = nn.expert_matmul %[[S]], %[[D]], %[[I]] : (tensor<?x2x6xf16>, tensor<3x6x8xf16>, tensor<?x2xi64>) -> tensor<?x2x8xf16>
// CHECK-NEXT: %[[RC:.*]] = nn.reshape %[[R]] {shape = ["t", 2, 1]}
// CHECK-NEXT: %[[W:.*]] = nn.mul %[[Y]], %[[RC]]
// CHECK-NEXT: %[[SUM:.*]] = nn.reduce %[[W]] {axes = array<i64: 1>, keepdims = false, kind = "sum"} : (tensor<?x2x8xf16>) -> tensor<?x8xf16>
// CHECK-NEXT: return %[[SUM]]
// MISS: expert_matmul{{.*}}experts of weight 0 are left out: takes what they compute for finite
// STRICT-LABEL: func @dense
// STRICT-NOT: nn.expert_matmul
func.func @dense(%x: tensor<?x8xf16> {nn.dims = ["t", 8]}, %l: tensor<?x3xf16> {nn.dims = ["t", 3]}, %r: tensor<?x2xf16> {nn.dims = ["t", 2]}) -> tensor<?x8xf16> {
  %i = nn.top_k %l {axis = 1 : i64, k = [2]} : (tensor<?x3xf16>) -> tensor<?x2xi64>
  %e0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %u0 = nn.weight {name = "u0", path = "w.bin", offset = 0 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c0 = nn.weight {name = "c0", path = "w.bin", offset = 96 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d0 = nn.weight {name = "d0", path = "w.bin", offset = 112 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %u1 = nn.weight {name = "u1", path = "w.bin", offset = 256 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c1 = nn.weight {name = "c1", path = "w.bin", offset = 352 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d1 = nn.weight {name = "d1", path = "w.bin", offset = 368 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e2 = nn.constant {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %u2 = nn.weight {name = "u2", path = "w.bin", offset = 512 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c2 = nn.weight {name = "c2", path = "w.bin", offset = 608 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d2 = nn.weight {name = "d2", path = "w.bin", offset = 624 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %h0 = nn.matmul %x, %u0 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b0 = nn.add %h0, %c0 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s0 = nn.silu %b0 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y0 = nn.matmul %s0, %d0 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q0 = nn.equal %i, %e0 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m0 = nn.cast %q0 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g0 = nn.mul %r, %m0 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w0 = nn.reduce %g0 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t0 = nn.mul %y0, %w0 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h1 = nn.matmul %x, %u1 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b1 = nn.add %h1, %c1 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s1 = nn.silu %b1 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y1 = nn.matmul %s1, %d1 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q1 = nn.equal %i, %e1 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m1 = nn.cast %q1 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g1 = nn.mul %r, %m1 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w1 = nn.reduce %g1 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t1 = nn.mul %y1, %w1 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h2 = nn.matmul %x, %u2 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b2 = nn.add %h2, %c2 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s2 = nn.silu %b2 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y2 = nn.matmul %s2, %d2 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q2 = nn.equal %i, %e2 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m2 = nn.cast %q2 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g2 = nn.mul %r, %m2 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w2 = nn.reduce %g2 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t2 = nn.mul %y2, %w2 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %a1 = nn.add %t0, %t1 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  %a2 = nn.add %a1, %t2 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return %a2 : tensor<?x8xf16>
}

// -----

// The router can choose an expert that is not there.
// CHECK-LABEL: func @missing
// CHECK-NOT: nn.expert_matmul
// CHECK: return
// MISS: expert_matmul{{.*}}expert 3 of 4 has no weighted output of this form
func.func @missing(%x: tensor<?x8xf16> {nn.dims = ["t", 8]}, %l: tensor<?x4xf16> {nn.dims = ["t", 4]}, %r: tensor<?x2xf16> {nn.dims = ["t", 2]}) -> tensor<?x8xf16> {
  %i = nn.top_k %l {axis = 1 : i64, k = [2]} : (tensor<?x4xf16>) -> tensor<?x2xi64>
  %e0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %u0 = nn.weight {name = "u0", path = "w.bin", offset = 0 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c0 = nn.weight {name = "c0", path = "w.bin", offset = 96 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d0 = nn.weight {name = "d0", path = "w.bin", offset = 112 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %u1 = nn.weight {name = "u1", path = "w.bin", offset = 256 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c1 = nn.weight {name = "c1", path = "w.bin", offset = 352 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d1 = nn.weight {name = "d1", path = "w.bin", offset = 368 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e2 = nn.constant {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %u2 = nn.weight {name = "u2", path = "w.bin", offset = 512 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c2 = nn.weight {name = "c2", path = "w.bin", offset = 608 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d2 = nn.weight {name = "d2", path = "w.bin", offset = 624 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %h0 = nn.matmul %x, %u0 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b0 = nn.add %h0, %c0 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s0 = nn.silu %b0 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y0 = nn.matmul %s0, %d0 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q0 = nn.equal %i, %e0 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m0 = nn.cast %q0 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g0 = nn.mul %r, %m0 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w0 = nn.reduce %g0 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t0 = nn.mul %y0, %w0 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h1 = nn.matmul %x, %u1 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b1 = nn.add %h1, %c1 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s1 = nn.silu %b1 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y1 = nn.matmul %s1, %d1 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q1 = nn.equal %i, %e1 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m1 = nn.cast %q1 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g1 = nn.mul %r, %m1 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w1 = nn.reduce %g1 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t1 = nn.mul %y1, %w1 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h2 = nn.matmul %x, %u2 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b2 = nn.add %h2, %c2 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s2 = nn.silu %b2 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y2 = nn.matmul %s2, %d2 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q2 = nn.equal %i, %e2 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m2 = nn.cast %q2 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g2 = nn.mul %r, %m2 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w2 = nn.reduce %g2 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t2 = nn.mul %y2, %w2 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %a1 = nn.add %t0, %t1 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  %a2 = nn.add %a1, %t2 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return %a2 : tensor<?x8xf16>
}

// -----

// One expert has another activation.
// CHECK-LABEL: func @unlike
// CHECK-NOT: nn.expert_matmul
// CHECK: return
// MISS: expert_matmul{{.*}}one expert has nn.relu where another has nn.silu
func.func @unlike(%x: tensor<?x8xf16> {nn.dims = ["t", 8]}, %l: tensor<?x3xf16> {nn.dims = ["t", 3]}, %r: tensor<?x2xf16> {nn.dims = ["t", 2]}) -> tensor<?x8xf16> {
  %i = nn.top_k %l {axis = 1 : i64, k = [2]} : (tensor<?x3xf16>) -> tensor<?x2xi64>
  %e0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %u0 = nn.weight {name = "u0", path = "w.bin", offset = 0 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c0 = nn.weight {name = "c0", path = "w.bin", offset = 96 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d0 = nn.weight {name = "d0", path = "w.bin", offset = 112 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %u1 = nn.weight {name = "u1", path = "w.bin", offset = 256 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c1 = nn.weight {name = "c1", path = "w.bin", offset = 352 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d1 = nn.weight {name = "d1", path = "w.bin", offset = 368 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e2 = nn.constant {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %u2 = nn.weight {name = "u2", path = "w.bin", offset = 512 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c2 = nn.weight {name = "c2", path = "w.bin", offset = 608 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d2 = nn.weight {name = "d2", path = "w.bin", offset = 624 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %h0 = nn.matmul %x, %u0 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b0 = nn.add %h0, %c0 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s0 = nn.silu %b0 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y0 = nn.matmul %s0, %d0 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q0 = nn.equal %i, %e0 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m0 = nn.cast %q0 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g0 = nn.mul %r, %m0 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w0 = nn.reduce %g0 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t0 = nn.mul %y0, %w0 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h1 = nn.matmul %x, %u1 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b1 = nn.add %h1, %c1 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s1 = nn.relu %b1 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y1 = nn.matmul %s1, %d1 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q1 = nn.equal %i, %e1 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m1 = nn.cast %q1 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g1 = nn.mul %r, %m1 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w1 = nn.reduce %g1 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t1 = nn.mul %y1, %w1 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h2 = nn.matmul %x, %u2 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b2 = nn.add %h2, %c2 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s2 = nn.silu %b2 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y2 = nn.matmul %s2, %d2 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q2 = nn.equal %i, %e2 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m2 = nn.cast %q2 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g2 = nn.mul %r, %m2 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w2 = nn.reduce %g2 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t2 = nn.mul %y2, %w2 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %a1 = nn.add %t0, %t1 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  %a2 = nn.add %a1, %t2 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return %a2 : tensor<?x8xf16>
}

// -----

// What else is added comes between the experts.
// CHECK-LABEL: func @residual_first
// CHECK-NOT: nn.expert_matmul
// CHECK: return
// MISS: expert_matmul{{.*}}the weighted outputs of the experts are not added up by themselves
func.func @residual_first(%x: tensor<?x8xf16> {nn.dims = ["t", 8]}, %l: tensor<?x3xf16> {nn.dims = ["t", 3]}, %r: tensor<?x2xf16> {nn.dims = ["t", 2]}) -> tensor<?x8xf16> {
  %i = nn.top_k %l {axis = 1 : i64, k = [2]} : (tensor<?x3xf16>) -> tensor<?x2xi64>
  %e0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %u0 = nn.weight {name = "u0", path = "w.bin", offset = 0 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c0 = nn.weight {name = "c0", path = "w.bin", offset = 96 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d0 = nn.weight {name = "d0", path = "w.bin", offset = 112 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %u1 = nn.weight {name = "u1", path = "w.bin", offset = 256 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c1 = nn.weight {name = "c1", path = "w.bin", offset = 352 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d1 = nn.weight {name = "d1", path = "w.bin", offset = 368 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e2 = nn.constant {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %u2 = nn.weight {name = "u2", path = "w.bin", offset = 512 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c2 = nn.weight {name = "c2", path = "w.bin", offset = 608 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d2 = nn.weight {name = "d2", path = "w.bin", offset = 624 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %h0 = nn.matmul %x, %u0 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b0 = nn.add %h0, %c0 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s0 = nn.silu %b0 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y0 = nn.matmul %s0, %d0 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q0 = nn.equal %i, %e0 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m0 = nn.cast %q0 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g0 = nn.mul %r, %m0 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w0 = nn.reduce %g0 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t0 = nn.mul %y0, %w0 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h1 = nn.matmul %x, %u1 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b1 = nn.add %h1, %c1 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s1 = nn.silu %b1 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y1 = nn.matmul %s1, %d1 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q1 = nn.equal %i, %e1 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m1 = nn.cast %q1 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g1 = nn.mul %r, %m1 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w1 = nn.reduce %g1 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t1 = nn.mul %y1, %w1 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h2 = nn.matmul %x, %u2 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b2 = nn.add %h2, %c2 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s2 = nn.silu %b2 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y2 = nn.matmul %s2, %d2 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q2 = nn.equal %i, %e2 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m2 = nn.cast %q2 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g2 = nn.mul %r, %m2 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w2 = nn.reduce %g2 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t2 = nn.mul %y2, %w2 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %p1 = nn.add %x, %t0 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  %a1 = nn.add %p1, %t1 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  %a2 = nn.add %a1, %t2 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return %a2 : tensor<?x8xf16>
}

// -----

// An index that may name an expert out of range, for which the graph adds nothing.
// CHECK-LABEL: func @any_index
// CHECK-NOT: nn.expert_matmul
// CHECK: return
// MISS: expert_matmul{{.*}}the experts compared with are not those of an nn.top_k
func.func @any_index(%x: tensor<?x8xf16> {nn.dims = ["t", 8]}, %l: tensor<?x3xf16> {nn.dims = ["t", 3]}, %r: tensor<?x2xf16> {nn.dims = ["t", 2]}, %i: tensor<?x2xi64> {nn.dims = ["t", 2]}) -> tensor<?x8xf16> {
  %e0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %u0 = nn.weight {name = "u0", path = "w.bin", offset = 0 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c0 = nn.weight {name = "c0", path = "w.bin", offset = 96 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d0 = nn.weight {name = "d0", path = "w.bin", offset = 112 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %u1 = nn.weight {name = "u1", path = "w.bin", offset = 256 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c1 = nn.weight {name = "c1", path = "w.bin", offset = 352 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d1 = nn.weight {name = "d1", path = "w.bin", offset = 368 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %e2 = nn.constant {value = dense<2> : tensor<i64>} : () -> tensor<i64>
  %u2 = nn.weight {name = "u2", path = "w.bin", offset = 512 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %c2 = nn.weight {name = "c2", path = "w.bin", offset = 608 : i64, length = 12 : i64} : () -> tensor<6xf16>
  %d2 = nn.weight {name = "d2", path = "w.bin", offset = 624 : i64, length = 96 : i64} : () -> tensor<6x8xf16>
  %h0 = nn.matmul %x, %u0 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b0 = nn.add %h0, %c0 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s0 = nn.silu %b0 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y0 = nn.matmul %s0, %d0 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q0 = nn.equal %i, %e0 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m0 = nn.cast %q0 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g0 = nn.mul %r, %m0 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w0 = nn.reduce %g0 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t0 = nn.mul %y0, %w0 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h1 = nn.matmul %x, %u1 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b1 = nn.add %h1, %c1 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s1 = nn.silu %b1 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y1 = nn.matmul %s1, %d1 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q1 = nn.equal %i, %e1 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m1 = nn.cast %q1 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g1 = nn.mul %r, %m1 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w1 = nn.reduce %g1 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t1 = nn.mul %y1, %w1 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %h2 = nn.matmul %x, %u2 {transpose_b = true} : (tensor<?x8xf16>, tensor<6x8xf16>) -> tensor<?x6xf16>
  %b2 = nn.add %h2, %c2 : (tensor<?x6xf16>, tensor<6xf16>) -> tensor<?x6xf16>
  %s2 = nn.silu %b2 : (tensor<?x6xf16>) -> tensor<?x6xf16>
  %y2 = nn.matmul %s2, %d2 : (tensor<?x6xf16>, tensor<6x8xf16>) -> tensor<?x8xf16>
  %q2 = nn.equal %i, %e2 : (tensor<?x2xi64>, tensor<i64>) -> tensor<?x2xi1>
  %m2 = nn.cast %q2 : (tensor<?x2xi1>) -> tensor<?x2xf16>
  %g2 = nn.mul %r, %m2 : (tensor<?x2xf16>, tensor<?x2xf16>) -> tensor<?x2xf16>
  %w2 = nn.reduce %g2 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x2xf16>) -> tensor<?x1xf16>
  %t2 = nn.mul %y2, %w2 : (tensor<?x8xf16>, tensor<?x1xf16>) -> tensor<?x8xf16>
  %a1 = nn.add %t0, %t1 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  %a2 = nn.add %a1, %t2 : (tensor<?x8xf16>, tensor<?x8xf16>) -> tensor<?x8xf16>
  return %a2 : tensor<?x8xf16>
}

