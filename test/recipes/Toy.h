// The toy dialect: toy.square_relu.
#pragma once

#include "ir/dialect/Dialect.h"
#include "ir/dialect/Formulas.h"

#include "test/recipes/ToyDialect.h.inc"
#define GET_OP_CLASSES
#include "test/recipes/Toy.h.inc"
