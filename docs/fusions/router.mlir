// fusion-opt router.mlir --fuse --profit=model --require=router=1
func.func @router(%scores: tensor<?x128xf32> {nn.name = "scores", nn.dims = ["rows", 128]})
    -> (tensor<?x8xi64> {nn.name = "expert"}, tensor<?x8xf32> {nn.name = "weight"}) {
  %p = nn.softmax %scores {axis = 1 : i64} : (tensor<?x128xf32>) -> tensor<?x128xf32>
  %expert = nn.top_k %p {axis = 1 : i64, k = [8]} : (tensor<?x128xf32>) -> tensor<?x8xi64>
  %chosen = nn.gather_elements %p, %expert {axis = 1 : i64}
      : (tensor<?x128xf32>, tensor<?x8xi64>) -> tensor<?x8xf32>
  %sum = nn.reduce %chosen {kind = "sum", axes = array<i64: 1>, keepdims = true}
      : (tensor<?x8xf32>) -> tensor<?x1xf32>
  %weight = nn.div %chosen, %sum : (tensor<?x8xf32>, tensor<?x1xf32>) -> tensor<?x8xf32>
  return %expert, %weight : tensor<?x8xi64>, tensor<?x8xf32>
}
