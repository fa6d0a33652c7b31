// nn.scatter_reduce.
#pragma once

#include "ir/dialect/Dialect.h"

#define GET_OP_CLASSES
#include "ir/dialect/NNScatter.h.inc"
