// fusion-opt gated_activation.mlir --fuse --profit=model --require=gated_activation=1
func.func @gated_activation(%gate: tensor<?x14336xbf16> {nn.name = "gate", nn.dims = ["rows", 14336]},
                            %up: tensor<?x14336xbf16> {nn.name = "up", nn.dims = ["rows", 14336]})
    -> (tensor<?x14336xbf16> {nn.name = "y"}) {
  %a = nn.silu %gate : (tensor<?x14336xbf16>) -> tensor<?x14336xbf16>
  %y = nn.mul %a, %up : (tensor<?x14336xbf16>, tensor<?x14336xbf16>) -> tensor<?x14336xbf16>
  return %y : tensor<?x14336xbf16>
}
