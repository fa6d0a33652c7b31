// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-attention --fuse-sink-attention --split-input-file | FileCheck %s --check-prefix=FUSED

// FUSED-LABEL: @granite
// FUSED: fusion.group "sink_attention" schedule "attention"
// FUSED-LABEL: @plain
// FUSED: fusion.group "sink_attention" schedule "attention"
// FUSED-LABEL: @rank4
// FUSED: fusion.group "sink_attention" schedule "attention"
// FUSED-NOT: fusion.group "sink_attention"

// As transformers write granite_swa: the sink in a gate behind the attention, by the logarithm of the softmax's sum.
// CHECK-LABEL: @granite
// CHECK-NOT: nn.softmax
// CHECK-DAG: %[[K:.*]] = nn.pad %{{.*}} {high = [0, 0, 0, 0], low = [0, 0, 1, 0]}
// CHECK-DAG: %[[ALL:.*]] = nn.concat %{{.*}}, %{{.*}} {axis = 3 : i64}
// CHECK: %[[Y:.*]] = nn.attention
// CHECK-SAME: zero_masked_rows = true
// CHECK-NOT: nn.sigmoid
// CHECK: return %[[Y]]
func.func @granite(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf16>,
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x16xf16> {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %l = nn.log %t : (tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %f = nn.add %l, %m : (tensor<?x4x?x1xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf16>) -> tensor<1x4x1xf16>
  %h = nn.sub %g, %r : (tensor<?x4x?xf16>, tensor<1x4x1xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y : tensor<?x4x?x16xf16>
}

// -----

// In f32, without a mask.
// CHECK-LABEL: @plain
// CHECK-NOT: nn.softmax
// CHECK-DAG: %[[K:.*]] = nn.pad %{{.*}} {high = [0, 0, 0, 0], low = [0, 0, 1, 0]}
// CHECK-DAG: %[[ALL:.*]] = nn.concat %{{.*}}, %{{.*}} {axis = 3 : i64}
// CHECK: %[[Y:.*]] = nn.attention
// CHECK-SAME: zero_masked_rows = true
// CHECK-NOT: nn.sigmoid
// CHECK: return %[[Y]]
func.func @plain(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf32>) -> tensor<?x4x?x16xf32> {
  %quarter = nn.constant {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x?xf32>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf32>, tensor<f32>) -> tensor<?x4x?x?xf32>
  %m = nn.reduce %1 {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x1xf32>
  %d = nn.sub %1, %m : (tensor<?x4x?x?xf32>, tensor<?x4x?x1xf32>) -> tensor<?x4x?x?xf32>
  %e = nn.exp %d : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x1xf32>
  %l = nn.log %t : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf32>
  %f = nn.add %l, %m : (tensor<?x4x?x1xf32>, tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf32>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf32>) -> tensor<?x4x?xf32>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf32>) -> tensor<1x4x1xf32>
  %h = nn.sub %g, %r : (tensor<?x4x?xf32>, tensor<1x4x1xf32>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %h : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %p = nn.softmax %1 {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %o = nn.matmul %p, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %y = nn.mul %o, %n : (tensor<?x4x?x16xf32>, tensor<?x4x?x1xf32>) -> tensor<?x4x?x16xf32>
  return %y : tensor<?x4x?x16xf32>
}

// -----

// The same without a dim that comes and goes, sums and products the other way round.
// CHECK-LABEL: @rank4
// CHECK-NOT: nn.softmax
// CHECK-DAG: %[[K:.*]] = nn.pad %{{.*}} {high = [0, 0, 0, 0], low = [0, 0, 1, 0]}
// CHECK-DAG: %[[ALL:.*]] = nn.concat %{{.*}}, %{{.*}} {axis = 3 : i64}
// CHECK: %[[Y:.*]] = nn.attention
// CHECK-SAME: zero_masked_rows = true
// CHECK-NOT: nn.sigmoid
// CHECK: return %[[Y]]
func.func @rank4(%q: tensor<?x4x?x16xbf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xbf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xbf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xbf16>,
                  %mask: tensor<?x1x?x?xbf16> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x16xbf16> {
  %quarter = nn.constant {value = dense<0.25> : tensor<bf16>} : () -> tensor<bf16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xbf16>, tensor<?x4x?x16xbf16>) -> tensor<?x4x?x?xbf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xbf16>, tensor<bf16>) -> tensor<?x4x?x?xbf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xbf16>, tensor<?x1x?x?xbf16>) -> tensor<?x4x?x?xbf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xbf16>) -> tensor<?x4x?x1xbf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xbf16>, tensor<?x4x?x1xbf16>) -> tensor<?x4x?x?xbf16>
  %e = nn.exp %d : (tensor<?x4x?x?xbf16>) -> tensor<?x4x?x?xbf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xbf16>) -> tensor<?x4x?x1xbf16>
  %l = nn.log %t : (tensor<?x4x?x1xbf16>) -> tensor<?x4x?x1xbf16>
  %f = nn.add %m, %l : (tensor<?x4x?x1xbf16>, tensor<?x4x?x1xbf16>) -> tensor<?x4x?x1xbf16>
  %r = nn.reshape %sinks {shape = [4, 1, 1]} : (tensor<4xbf16>) -> tensor<4x1x1xbf16>
  %h = nn.sub %f, %r : (tensor<?x4x?x1xbf16>, tensor<4x1x1xbf16>) -> tensor<?x4x?x1xbf16>
  %i = nn.cast %h : (tensor<?x4x?x1xbf16>) -> tensor<?x4x?x1xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xbf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xbf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xbf16>, tensor<?x4x?x16xbf16>) -> tensor<?x4x?x16xbf16>
  %u = nn.cast %j : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xbf16>
  %y = nn.mul %u, %o : (tensor<?x4x?x1xbf16>, tensor<?x4x?x16xbf16>) -> tensor<?x4x?x16xbf16>
  return %y : tensor<?x4x?x16xbf16>
}

// -----

// The sign is the other way round.
// CHECK-LABEL: @sign
// CHECK-NOT: nn.concat
// CHECK: nn.attention
// CHECK: nn.mul
// CHECK: return
func.func @sign(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf16>,
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x16xf16> {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %l = nn.log %t : (tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %f = nn.add %l, %m : (tensor<?x4x?x1xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf16>) -> tensor<1x4x1xf16>
  %h = nn.sub %r, %g : (tensor<1x4x1xf16>, tensor<?x4x?xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y : tensor<?x4x?x16xf16>
}

// -----

// Somebody else reads the logits.
// CHECK-LABEL: @logits_read
// CHECK-NOT: nn.concat
// CHECK: nn.attention
// CHECK: nn.mul
// CHECK: return
func.func @logits_read(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf16>,
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> (tensor<?x4x?x16xf16>, tensor<?x4x?x?xf16>) {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %l = nn.log %t : (tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %f = nn.add %l, %m : (tensor<?x4x?x1xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf16>) -> tensor<1x4x1xf16>
  %h = nn.sub %g, %r : (tensor<?x4x?xf16>, tensor<1x4x1xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y, %a : tensor<?x4x?x16xf16>, tensor<?x4x?x?xf16>
}

// -----

// Somebody else reads the logarithm.
// CHECK-LABEL: @logarithm_read
// CHECK-NOT: nn.concat
// CHECK: nn.attention
// CHECK: nn.mul
// CHECK: return
func.func @logarithm_read(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf16>,
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> (tensor<?x4x?x16xf16>, tensor<?x4x?xf16>) {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %l = nn.log %t : (tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %f = nn.add %l, %m : (tensor<?x4x?x1xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf16>) -> tensor<1x4x1xf16>
  %h = nn.sub %g, %r : (tensor<?x4x?xf16>, tensor<1x4x1xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y, %g : tensor<?x4x?x16xf16>, tensor<?x4x?xf16>
}

// -----

// The sum runs over the queries, of which there are as many as keys.
// CHECK-LABEL: @other_axis
// CHECK-NOT: nn.concat
// CHECK: nn.attention
// CHECK: nn.mul
// CHECK: return
func.func @other_axis(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %sinks: tensor<4xf16>,
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "s"]}) -> tensor<?x4x?x16xf16> {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 2>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x1x?xf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xf16>, tensor<?x4x1x?xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 2>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x1x?xf16>
  %l = nn.log %t : (tensor<?x4x1x?xf16>) -> tensor<?x4x1x?xf16>
  %f = nn.add %l, %m : (tensor<?x4x1x?xf16>, tensor<?x4x1x?xf16>) -> tensor<?x4x1x?xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x1x?xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf16>) -> tensor<1x4x1xf16>
  %h = nn.sub %g, %r : (tensor<?x4x?xf16>, tensor<1x4x1xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y : tensor<?x4x?x16xf16>
}

// -----

// A sink of each query, not of each head.
// CHECK-LABEL: @sink_of_queries
// CHECK-NOT: nn.concat
// CHECK: nn.attention
// CHECK: nn.mul
// CHECK: return
func.func @sink_of_queries(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<?xf16> {nn.dims = ["s"]},
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x16xf16> {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %l = nn.log %t : (tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %f = nn.add %l, %m : (tensor<?x4x?x1xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 1, "s"]} : (tensor<?xf16>) -> tensor<1x1x?xf16>
  %h = nn.sub %g, %r : (tensor<?x4x?xf16>, tensor<1x1x?xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y : tensor<?x4x?x16xf16>
}

// -----

// The logarithm is that of the scores without their mask.
// CHECK-LABEL: @other_scores
// CHECK-NOT: nn.concat
// CHECK: nn.attention
// CHECK: nn.mul
// CHECK: return
func.func @other_scores(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf16>,
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x16xf16> {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %1 {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %d = nn.sub %1, %m : (tensor<?x4x?x?xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %l = nn.log %t : (tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %f = nn.add %l, %m : (tensor<?x4x?x1xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf16>) -> tensor<1x4x1xf16>
  %h = nn.sub %g, %r : (tensor<?x4x?xf16>, tensor<1x4x1xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y : tensor<?x4x?x16xf16>
}

// -----

// What is added is not what was subtracted.
// CHECK-LABEL: @other_largest
// CHECK-NOT: nn.concat
// CHECK: nn.attention
// CHECK: nn.mul
// CHECK: return
func.func @other_largest(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf16>,
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x16xf16> {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "sum", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %l = nn.log %t : (tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %f = nn.add %l, %l : (tensor<?x4x?x1xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf16>) -> tensor<1x4x1xf16>
  %h = nn.sub %g, %r : (tensor<?x4x?xf16>, tensor<1x4x1xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y : tensor<?x4x?x16xf16>
}

// -----

// A mean, not a sum.
// CHECK-LABEL: @sum_of_others
// CHECK-NOT: nn.concat
// CHECK: nn.attention
// CHECK: nn.mul
// CHECK: return
func.func @sum_of_others(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf16>,
                  %mask: tensor<?x1x?x?xf16> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x16xf16> {
  %quarter = nn.constant {value = dense<0.25> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.mul %0, %quarter : (tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %a = nn.add %1, %mask : (tensor<?x4x?x?xf16>, tensor<?x1x?x?xf16>) -> tensor<?x4x?x?xf16>
  %m = nn.reduce %a {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %d = nn.sub %a, %m : (tensor<?x4x?x?xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x?xf16>
  %e = nn.exp %d : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %t = nn.reduce %e {kind = "mean", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x1xf16>
  %l = nn.log %t : (tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %f = nn.add %l, %m : (tensor<?x4x?x1xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x1xf16>
  %g = nn.reshape %f {shape = ["b", 4, "s"]} : (tensor<?x4x?x1xf16>) -> tensor<?x4x?xf16>
  %r = nn.reshape %sinks {shape = [1, 4, 1]} : (tensor<4xf16>) -> tensor<1x4x1xf16>
  %h = nn.sub %g, %r : (tensor<?x4x?xf16>, tensor<1x4x1xf16>) -> tensor<?x4x?xf16>
  %i = nn.cast %h : (tensor<?x4x?xf16>) -> tensor<?x4x?xf32>
  %j = nn.sigmoid %i : (tensor<?x4x?xf32>) -> tensor<?x4x?xf32>
  %w = nn.cast %a : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %w {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %c = nn.cast %p : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf16>
  %o = nn.matmul %c, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  %n = nn.reshape %j {shape = ["b", 4, "s", 1]} : (tensor<?x4x?xf32>) -> tensor<?x4x?x1xf32>
  %u = nn.cast %n : (tensor<?x4x?x1xf32>) -> tensor<?x4x?x1xf16>
  %y = nn.mul %o, %u : (tensor<?x4x?x16xf16>, tensor<?x4x?x1xf16>) -> tensor<?x4x?x16xf16>
  return %y : tensor<?x4x?x16xf16>
}
