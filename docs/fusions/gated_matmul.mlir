// fusion-opt gated_matmul.mlir --fuse --profit=model --require=gated_matmul=1
func.func @gated_matmul(%x: tensor<?x4096xbf16> {nn.name = "x", nn.dims = ["rows", 4096]},
                        %w_gate: tensor<4096x14336xbf16> {nn.name = "w_gate"},
                        %w_up: tensor<4096x14336xbf16> {nn.name = "w_up"})
    -> (tensor<?x14336xbf16> {nn.name = "y"}) {
  %gate = nn.matmul %x, %w_gate : (tensor<?x4096xbf16>, tensor<4096x14336xbf16>) -> tensor<?x14336xbf16>
  %up = nn.matmul %x, %w_up : (tensor<?x4096xbf16>, tensor<4096x14336xbf16>) -> tensor<?x14336xbf16>
  %a = nn.silu %gate : (tensor<?x14336xbf16>) -> tensor<?x14336xbf16>
  %y = nn.mul %a, %up : (tensor<?x14336xbf16>, tensor<?x14336xbf16>) -> tensor<?x14336xbf16>
  return %y : tensor<?x14336xbf16>
}
