// fusion-opt latent_attention.mlir --fuse --profit=model --require=latent_attention=1
func.func @latent_attention(%qn: tensor<?x16x1x512xbf16> {nn.name = "q_nope", nn.dims = ["batch", 16, 1, 512]},
                            %qr: tensor<?x16x1x64xbf16> {nn.name = "q_pe", nn.dims = ["batch", 16, 1, 64]},
                            %kv: tensor<?x1x?x512xbf16> {nn.name = "kv_cache", nn.dims = ["batch", 1, "keys", 512]},
                            %pe: tensor<?x1x?x64xbf16> {nn.name = "pe_cache", nn.dims = ["batch", 1, "keys", 64]})
    -> (tensor<?x16x1x512xbf16> {nn.name = "y"}) {
  %q = nn.concat %qn, %qr {axis = 3 : i64}
    : (tensor<?x16x1x512xbf16>, tensor<?x16x1x64xbf16>) -> tensor<?x16x1x576xbf16>
  %k = nn.concat %kv, %pe {axis = 3 : i64}
    : (tensor<?x1x?x512xbf16>, tensor<?x1x?x64xbf16>) -> tensor<?x1x?x576xbf16>
  %y = nn.attention %q, %k, %kv {scale = 0.1 : f32, causal = true}
    : (tensor<?x16x1x576xbf16>, tensor<?x1x?x576xbf16>, tensor<?x1x?x512xbf16>) -> tensor<?x16x1x512xbf16>
  return %y : tensor<?x16x1x512xbf16>
}
