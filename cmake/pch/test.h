// Of tests without MLIR.
#include "cmake/pch/standard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
