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

// -----

// Quantised weights stay so: blocks along the sum, one scale a row, one scale a weight.
// CHECK-LABEL: func @quantised
// CHECK-DAG: %[[Q:.*]] = nn.weight {{.*}}part_offsets = array<i64: 0, 256>{{.*}} : () -> tensor<2x4x8xui4>
// CHECK-DAG: %[[QS:.*]] = nn.weight {{.*}}part_offsets = array<i64: 16, 272>{{.*}} : () -> tensor<2x4x2xf32>
// CHECK: %[[W:.*]] = nn.dequantize %[[Q]], %[[QS]] {axis = 2 : i64, block_size = 4 : i64} : (tensor<2x4x8xui4>, tensor<2x4x2xf32>) -> tensor<2x4x8xf32>
// CHECK: nn.expert_matmul %{{.*}}, %[[W]], %{{.*}} {transpose_w = true}
// CHECK: %[[T:.*]] = nn.weight {{.*}}part_offsets = array<i64: 80, 336>{{.*}} : () -> tensor<2x8x1xf32>
// CHECK: %[[V:.*]] = nn.dequantize %{{.*}}, %[[T]] {axis = 2 : i64, block_size = 4 : i64} : (tensor<2x8x4xi8>, tensor<2x8x1xf32>) -> tensor<2x8x4xf32>
// CHECK: nn.expert_matmul %{{.*}}, %[[V]], %{{.*}} {transpose_w = true}
// CHECK: %[[U:.*]] = nn.dequantize {{.*}} {axis = 0 : i64} : (tensor<2x8x8xi8>, tensor<2xf32>) -> tensor<2x8x8xf32>
// CHECK: nn.expert_matmul %{{.*}}, %[[U]], %{{.*}} :
func.func @quantised(%x: tensor<?x8xf32> {nn.dims = ["t", 8]}, %l: tensor<?x2xf32> {nn.dims = ["t", 2]}, %r: tensor<?x1xf32> {nn.dims = ["t", 1]}) -> tensor<?x8xf32> {
  %i = nn.top_k %l {axis = 1 : i64, k = [1]} : (tensor<?x2xf32>) -> tensor<?x1xi64>
  %zero = nn.constant {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %e0 = nn.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %q0 = nn.weight {name = "q0", path = "w.bin", offset = 0 : i64, length = 16 : i64} : () -> tensor<4x8xui4>
  %s0 = nn.weight {name = "s0", path = "w.bin", offset = 16 : i64, length = 32 : i64} : () -> tensor<4x2xf32>
  %v0 = nn.weight {name = "v0", path = "w.bin", offset = 48 : i64, length = 32 : i64} : () -> tensor<8x4xi8>
  %t0 = nn.weight {name = "t0", path = "w.bin", offset = 80 : i64, length = 32 : i64} : () -> tensor<8xf32>
  %u0 = nn.weight {name = "u0", path = "w.bin", offset = 112 : i64, length = 64 : i64} : () -> tensor<8x8xi8>
  %c0 = nn.weight {name = "c0", path = "w.bin", offset = 176 : i64, length = 4 : i64} : () -> tensor<f32>
  %w0 = nn.dequantize %q0, %s0 {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xui4>, tensor<4x2xf32>) -> tensor<4x8xf32>
  %x0 = nn.dequantize %v0, %t0 {axis = 0 : i64} : (tensor<8x4xi8>, tensor<8xf32>) -> tensor<8x4xf32>
  %y0 = nn.dequantize %u0, %c0 : (tensor<8x8xi8>, tensor<f32>) -> tensor<8x8xf32>
  %h0 = nn.matmul %x, %w0 {transpose_b = true} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %j0 = nn.matmul %h0, %x0 {transpose_b = true} : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
  %k0 = nn.matmul %j0, %y0 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %m0 = nn.equal %i, %e0 : (tensor<?x1xi64>, tensor<i64>) -> tensor<?x1xi1>
  %g0 = nn.where %m0, %r, %zero : (tensor<?x1xi1>, tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %n0 = nn.reduce %g0 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %o0 = nn.mul %k0, %n0 : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %e1 = nn.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %q1 = nn.weight {name = "q1", path = "w.bin", offset = 256 : i64, length = 16 : i64} : () -> tensor<4x8xui4>
  %s1 = nn.weight {name = "s1", path = "w.bin", offset = 272 : i64, length = 32 : i64} : () -> tensor<4x2xf32>
  %v1 = nn.weight {name = "v1", path = "w.bin", offset = 304 : i64, length = 32 : i64} : () -> tensor<8x4xi8>
  %t1 = nn.weight {name = "t1", path = "w.bin", offset = 336 : i64, length = 32 : i64} : () -> tensor<8xf32>
  %u1 = nn.weight {name = "u1", path = "w.bin", offset = 368 : i64, length = 64 : i64} : () -> tensor<8x8xi8>
  %c1 = nn.weight {name = "c1", path = "w.bin", offset = 432 : i64, length = 4 : i64} : () -> tensor<f32>
  %w1 = nn.dequantize %q1, %s1 {axis = 1 : i64, block_size = 4 : i64} : (tensor<4x8xui4>, tensor<4x2xf32>) -> tensor<4x8xf32>
  %x1 = nn.dequantize %v1, %t1 {axis = 0 : i64} : (tensor<8x4xi8>, tensor<8xf32>) -> tensor<8x4xf32>
  %y1 = nn.dequantize %u1, %c1 : (tensor<8x8xi8>, tensor<f32>) -> tensor<8x8xf32>
  %h1 = nn.matmul %x, %w1 {transpose_b = true} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %j1 = nn.matmul %h1, %x1 {transpose_b = true} : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
  %k1 = nn.matmul %j1, %y1 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %m1 = nn.equal %i, %e1 : (tensor<?x1xi64>, tensor<i64>) -> tensor<?x1xi1>
  %g1 = nn.where %m1, %r, %zero : (tensor<?x1xi1>, tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
  %n1 = nn.reduce %g1 {axes = array<i64: 1>, keepdims = true, kind = "sum"} : (tensor<?x1xf32>) -> tensor<?x1xf32>
  %o1 = nn.mul %k1, %n1 : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
  %z = nn.add %o0, %o1 : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}
