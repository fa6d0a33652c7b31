// fusion-opt expert_matmul.mlir --fuse --profit=model --require=expert_matmul=2
func.func @expert_matmul(%x: tensor<?x1x2048xbf16> {nn.name = "x", nn.dims = ["rows", 1, 2048]},
                         %w_gate: tensor<128x768x2048xbf16> {nn.name = "w_gate"},
                         %w_up: tensor<128x768x2048xbf16> {nn.name = "w_up"},
                         %w_down: tensor<128x2048x768xbf16> {nn.name = "w_down"},
                         %expert: tensor<?x8xi64> {nn.name = "expert", nn.dims = ["rows", 8]},
                         %weight: tensor<?x8x1xbf16> {nn.name = "weight", nn.dims = ["rows", 8, 1]})
    -> (tensor<?x2048xbf16> {nn.name = "y"}) {
  %gate = nn.expert_matmul %x, %w_gate, %expert {transpose_w = true}
      : (tensor<?x1x2048xbf16>, tensor<128x768x2048xbf16>, tensor<?x8xi64>) -> tensor<?x8x768xbf16>
  %up = nn.expert_matmul %x, %w_up, %expert {transpose_w = true}
      : (tensor<?x1x2048xbf16>, tensor<128x768x2048xbf16>, tensor<?x8xi64>) -> tensor<?x8x768xbf16>
  %a = nn.silu %gate : (tensor<?x8x768xbf16>) -> tensor<?x8x768xbf16>
  %h = nn.mul %a, %up : (tensor<?x8x768xbf16>, tensor<?x8x768xbf16>) -> tensor<?x8x768xbf16>
  %down = nn.expert_matmul %h, %w_down, %expert {transpose_w = true}
      : (tensor<?x8x768xbf16>, tensor<128x2048x768xbf16>, tensor<?x8xi64>) -> tensor<?x8x2048xbf16>
  %weighted = nn.mul %down, %weight : (tensor<?x8x2048xbf16>, tensor<?x8x1xbf16>) -> tensor<?x8x2048xbf16>
  %y = nn.reduce %weighted {kind = "sum", axes = array<i64: 1>, keepdims = false}
      : (tensor<?x8x2048xbf16>) -> tensor<?x2048xbf16>
  return %y : tensor<?x2048xbf16>
}
