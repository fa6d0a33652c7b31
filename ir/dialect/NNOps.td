include "ir/dialect/NNPointwise.td"
include "ir/dialect/NNData.td"
include "ir/dialect/NNCompute.td"
