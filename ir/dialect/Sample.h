// nn.sample.
#pragma once

#include "ir/dialect/Dialect.h"

#define GET_OP_CLASSES
#include "ir/dialect/NNSample.h.inc"
