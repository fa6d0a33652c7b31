// fusion-opt qkv_matmul.mlir --fuse --profit=model --require=qkv_matmul=1
func.func @qkv_matmul(%x: tensor<?x4096xbf16> {nn.name = "x", nn.dims = ["rows", 4096]})
    -> (tensor<?x4096xbf16> {nn.name = "q"},
        tensor<?x1024xbf16> {nn.name = "k"},
        tensor<?x1024xbf16> {nn.name = "v"}) {
  %w_q = nn.constant {value = dense<0.1> : tensor<4096x4096xbf16>} : () -> tensor<4096x4096xbf16>
  %w_k = nn.constant {value = dense<0.2> : tensor<4096x1024xbf16>} : () -> tensor<4096x1024xbf16>
  %w_v = nn.constant {value = dense<0.3> : tensor<4096x1024xbf16>} : () -> tensor<4096x1024xbf16>
  %q = nn.matmul %x, %w_q : (tensor<?x4096xbf16>, tensor<4096x4096xbf16>) -> tensor<?x4096xbf16>
  %k = nn.matmul %x, %w_k : (tensor<?x4096xbf16>, tensor<4096x1024xbf16>) -> tensor<?x1024xbf16>
  %v = nn.matmul %x, %w_v : (tensor<?x4096xbf16>, tensor<4096x1024xbf16>) -> tensor<?x1024xbf16>
  return %q, %k, %v
      : tensor<?x4096xbf16>, tensor<?x1024xbf16>, tensor<?x1024xbf16>
}
