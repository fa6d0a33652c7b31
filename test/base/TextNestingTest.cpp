#include "ir/base/TextNesting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusion {
namespace {

std::string said(const std::string &text) {
  const Status status = checkNesting(text);
  return status ? "" : status.error().message;
}

std::string nested(int depth, const std::string &open, const std::string &close) {
  std::string text;
  for (int i = 0; i < depth; ++i)
    text += open;
  for (int i = 0; i < depth; ++i)
    text += close;
  return text;
}

TEST(TextNesting, Brackets) {
  for (const auto &[open, close] :
       {std::pair{"(", ")"}, {"[", "]"}, {"{", "}"}, {"tuple<", ">"}, {"() -> (", ")"}, {"fused[", "]"}}) {
    EXPECT_EQ(said(nested(256, open, close)), "") << open;
    EXPECT_EQ(said(nested(257, open, close)), "nested more than 256 deep") << open;
  }
  std::string one_after_another;
  for (int i = 0; i < 1000; ++i)
    one_after_another += "%0 = nn.relu %x {a = [1]} : (tensor<4xf32>) -> tensor<4xf32>\n";
  EXPECT_EQ(said(one_after_another), "");
}

TEST(TextNesting, StringsAndCommentsDoNotCount) {
  EXPECT_EQ(said("\"" + std::string(1000, '(') + "\\\"" + std::string(1000, '[') + "affine_map\" ()"), "");
  EXPECT_EQ(said("// " + std::string(1000, '(') + " affine_set\n()"), "");
  EXPECT_EQ(said("\"" + std::string(1000, '(')), ""); // the parser says that it does not end
  EXPECT_EQ(said("\"a\\"), "");
}

TEST(TextNesting, AliasesOfAliases) {
  for (const std::string kind : {"# [", "! tuple<", "! () ->", "# loc(\"x\"("}) {
    std::string text = kind.substr(0, 1) + "a0 = x\n";
    for (int i = 1; i <= 300; ++i)
      text += kind.substr(0, 1) + "a" + std::to_string(i) + " = " + kind.substr(2) + kind.substr(0, 1) + "a" +
              std::to_string(i - 1) +
              (kind.find('[') != kind.npos     ? "]"
               : kind.find('<') != kind.npos   ? ">"
               : kind.find("(\"") != kind.npos ? "))"
                                               : "") +
              "\n";
    EXPECT_EQ(said(text), "nested more than 256 deep") << kind;
    EXPECT_EQ(said(text.substr(0, text.size() / 4)), "") << kind;
  }
  std::string flat = "#loc = loc(unknown)\n";
  for (int i = 1; i <= 1000; ++i)
    flat += "#loc" + std::to_string(i) + " = loc(\"x\"(#loc))\n";
  EXPECT_EQ(said(flat), "");
}

TEST(TextNesting, WhatIsNoGraph) {
  EXPECT_EQ(said("ML\xefR\x06"), "is MLIR bytecode, not text");
  EXPECT_EQ(said("#m = affine_map<(d0) -> (d0)>"), "affine maps and sets are no part of it");
  EXPECT_EQ(said("{a = affine_set<(d0) : (d0 >= 0)>}"), "affine maps and sets are no part of it");
  EXPECT_EQ(said("%affine_map = nn.relu @affine_set"), "");
  EXPECT_EQ(said(""), "");
  EXPECT_EQ(said("#"), "");
  EXPECT_EQ(said("#a ="), "");
}

} // namespace
} // namespace fusion
