// RUN: fusion-opt %s --nn-raise-attention --split-input-file | FileCheck %s
// RUN: fusion-opt %s --nn-raise-attention --fuse-sink-attention --split-input-file | FileCheck %s --check-prefix=FUSED

// As transformers write it: the sinks behind the scores, the largest subtracted, the sink's share dropped.
// CHECK-LABEL: @behind
// CHECK-NOT: nn.softmax
// CHECK-DAG: %[[K:.*]] = nn.pad %{{.*}} {high = [0, 0, 0, 0], low = [0, 0, 1, 0]}
// CHECK-DAG: %[[ALL:.*]] = nn.concat %{{.*}}, %{{.*}} {axis = 3 : i64}
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[ALL]]
// FUSED-LABEL: @behind
// FUSED-NOT: nn.pad
// FUSED: fusion.group "sink_attention" schedule "attention"
// FUSED: nn.pad
// FUSED: nn.attention
// FUSED: fusion.yield
func.func @behind(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<4xf32>) -> tensor<?x4x?x16xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x?xf32>
  %r = nn.reshape %sinks {shape = [1, 4, 1, 1]} : (tensor<4xf32>) -> tensor<1x4x1x1xf32>
  %e = nn.expand %r {shape = ["b", 4, "s", 1]} : (tensor<1x4x1x1xf32>) -> tensor<?x4x?x1xf32>
  %c = nn.concat %0, %e {axis = 3 : i64} : (tensor<?x4x?x?xf32>, tensor<?x4x?x1xf32>) -> tensor<?x4x?x?xf32>
  %m = nn.reduce %c {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x1xf32>
  %d = nn.sub %c, %m : (tensor<?x4x?x?xf32>, tensor<?x4x?x1xf32>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %d {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %w = nn.slice %p {starts = [0, 0, 0, 0], sizes = ["b", 4, "s", "t"], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %y = nn.matmul %w, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %y : tensor<?x4x?x16xf32>
}

// -----

// In front, with a mask that chooses.
// CHECK-LABEL: @before
// CHECK: %[[WIDE:.*]] = nn.pad %{{.*}} {high = [0, 0, 0, 0], low = [0, 0, 0, 1]} : (tensor<?x1x?x?xi1>
// CHECK: %[[ALL:.*]] = nn.where %[[WIDE]]
// CHECK: nn.attention %{{.*}}, %{{.*}}, %{{.*}}, %[[ALL]]
// FUSED-LABEL: @before
// FUSED: fusion.group "sink_attention" schedule "attention"
func.func @before(%q: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]},
                  %v: tensor<?x4x?x16xf16> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<1x4x1x1xf16>, %keep: tensor<?x1x?x?xi1> {nn.dims = ["b", 1, "s", "t"]}) -> tensor<?x4x?x16xf16> {
  %low = nn.constant {value = dense<0xFC00> : tensor<f16>} : () -> tensor<f16>
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x?xf16>
  %1 = nn.where %keep, %0, %low : (tensor<?x1x?x?xi1>, tensor<?x4x?x?xf16>, tensor<f16>) -> tensor<?x4x?x?xf16>
  %e = nn.expand %sinks {shape = ["b", 4, "s", 1]} : (tensor<1x4x1x1xf16>) -> tensor<?x4x?x1xf16>
  %c = nn.concat %e, %1 {axis = 3 : i64} : (tensor<?x4x?x1xf16>, tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %p = nn.softmax %c {axis = 3 : i64} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %w = nn.slice %p {starts = [0, 0, 0, 1], sizes = ["b", 4, "s", "t"], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x4x?x?xf16>) -> tensor<?x4x?x?xf16>
  %y = nn.matmul %w, %v : (tensor<?x4x?x?xf16>, tensor<?x4x?x16xf16>) -> tensor<?x4x?x16xf16>
  return %y : tensor<?x4x?x16xf16>
}

// -----

// The share of the sink is taken, and that of a key is not.
// CHECK-LABEL: @shifted
// CHECK: nn.softmax
// CHECK-NOT: nn.attention
func.func @shifted(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]},
                   %v: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]}, %sinks: tensor<1x4x1x1xf32>) -> tensor<?x4x?x16xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x?xf32>
  %e = nn.expand %sinks {shape = ["b", 4, "s", 1]} : (tensor<1x4x1x1xf32>) -> tensor<?x4x?x1xf32>
  %c = nn.concat %0, %e {axis = 3 : i64} : (tensor<?x4x?x?xf32>, tensor<?x4x?x1xf32>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %c {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %w = nn.slice %p {starts = [0, 0, 0, 1], sizes = ["b", 4, "s", "t"], steps = array<i64: 1, 1, 1, 1>} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %y = nn.matmul %w, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %y : tensor<?x4x?x16xf32>
}

// -----

// The largest is subtracted though there is no sink.
// CHECK-LABEL: @largest
// CHECK-NOT: nn.softmax
// CHECK: nn.attention
// FUSED-LABEL: @largest
func.func @largest(%q: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "s", 16]}, %k: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]},
                   %v: tensor<?x4x?x16xf32> {nn.dims = ["b", 4, "t", 16]}) -> tensor<?x4x?x16xf32> {
  %0 = nn.matmul %q, %k {transpose_b = true} : (tensor<?x4x?x16xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x?xf32>
  %m = nn.reduce %0 {kind = "max", axes = array<i64: 3>, keepdims = true} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x1xf32>
  %d = nn.sub %0, %m : (tensor<?x4x?x?xf32>, tensor<?x4x?x1xf32>) -> tensor<?x4x?x?xf32>
  %p = nn.softmax %d {axis = 3 : i64} : (tensor<?x4x?x?xf32>) -> tensor<?x4x?x?xf32>
  %y = nn.matmul %p, %v : (tensor<?x4x?x?xf32>, tensor<?x4x?x16xf32>) -> tensor<?x4x?x16xf32>
  return %y : tensor<?x4x?x16xf32>
}
