// fusion-opt pointwise.mlir --fuse --profit=model --require=pointwise=1
func.func @pointwise(%x: tensor<?x4096xbf16> {nn.name = "x", nn.dims = ["rows", 4096]},
                     %y: tensor<?x4096xbf16> {nn.name = "y", nn.dims = ["rows", 4096]},
                     %z: tensor<?x4096xbf16> {nn.name = "z", nn.dims = ["rows", 4096]})
    -> (tensor<?x4096xbf16> {nn.name = "c"}) {
  %a = nn.mul %x, %y : (tensor<?x4096xbf16>, tensor<?x4096xbf16>) -> tensor<?x4096xbf16>
  %b = nn.sub %z, %a : (tensor<?x4096xbf16>, tensor<?x4096xbf16>) -> tensor<?x4096xbf16>
  %c = nn.exp %b : (tensor<?x4096xbf16>) -> tensor<?x4096xbf16>
  return %c : tensor<?x4096xbf16>
}
