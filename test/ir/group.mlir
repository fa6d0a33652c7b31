// RUN: fusion-opt %s | FileCheck %s
// RUN: fusion-opt %s | fusion-opt | FileCheck %s

// CHECK-LABEL: @group
// CHECK: %[[G:.*]]:2 = fusion.group "add_norm" schedule "row" (%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}}, %[[W:.*]] = %{{.*}}) : (tensor<?x128xbf16>, tensor<?x128xbf16>, tensor<128xbf16>) -> (tensor<?x128xbf16>, tensor<?x128xbf16>) {
// CHECK-NEXT: %[[S:.*]] = nn.add %[[A]], %[[B]]
// CHECK-NEXT: %[[N:.*]] = nn.rms_norm %[[S]], %[[W]]
// CHECK-NEXT: fusion.yield %[[N]], %[[S]]
// CHECK: return %[[G]]#0, %[[G]]#1
func.func @group(%x: tensor<?x128xbf16>, %residual: tensor<?x128xbf16>, %weight: tensor<128xbf16>)
    -> (tensor<?x128xbf16>, tensor<?x128xbf16>) {
  %norm, %sum = fusion.group "add_norm" schedule "row" (%a = %x, %b = %residual, %w = %weight)
      : (tensor<?x128xbf16>, tensor<?x128xbf16>, tensor<128xbf16>) -> (tensor<?x128xbf16>, tensor<?x128xbf16>) {
    %0 = nn.add %a, %b : (tensor<?x128xbf16>, tensor<?x128xbf16>) -> tensor<?x128xbf16>
    %1 = nn.rms_norm %0, %w {eps = 1.0e-6 : f32} : (tensor<?x128xbf16>, tensor<128xbf16>) -> tensor<?x128xbf16>
    fusion.yield %1, %0 : tensor<?x128xbf16>, tensor<?x128xbf16>
  }
  return %norm, %sum : tensor<?x128xbf16>, tensor<?x128xbf16>
}

// A group without operands.
// CHECK-LABEL: @no_operands
// CHECK: fusion.group "pointwise" schedule "pointwise" () : () -> tensor<f32> {
func.func @no_operands() -> tensor<f32> {
  %r = fusion.group "pointwise" schedule "pointwise" () : () -> tensor<f32> {
    %c = nn.constant {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
    fusion.yield %c : tensor<f32>
  }
  return %r : tensor<f32>
}
