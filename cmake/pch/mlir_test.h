// Of tests with MLIR.
#include "cmake/pch/mlir.h"

#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
