// Lines of emitted source, and structs of constants.
#include "codegen/body/Code.h"
#include "codegen/body/Config.h"

#include <gtest/gtest.h>

#include <sstream>

using namespace fusion::body;

TEST(BodyCode, BracesIndent) {
  Code code;
  code.line("if (a) {");
  code.line("b();");
  code.line("}");
  EXPECT_EQ(code.text(), "  if (a) {\n    b();\n  }\n");
}

TEST(BodyCode, CommentsDoNotIndent) {
  Code code;
  code.line("// a name that ends in {");
  code.line("b();");
  code.line("// }");
  code.line("c();");
  EXPECT_EQ(code.text(), "  // a name that ends in {\n  b();\n  // }\n  c();\n");
}

TEST(BodyCode, LongLinesBreakBehindCommasOfTheFewestBrackets) {
  const std::string pointers =
      "const Vec<f16, 8> *first_of_the_inputs, const Vec<f16, 8> *second_of_the_inputs";
  EXPECT_EQ(fitted("KERNEL(128) name(" + pointers + ", i64 rows, i64 columns) {\n"),
            "KERNEL(128) name(" + pointers + ", i64 rows,\n    i64 columns) {\n");
  EXPECT_EQ(fitted("short\n\n  lines\n"), "short\n\n  lines\n");
}

TEST(BodyCode, WhatHasNoCommaBreaksAtASpace) {
  std::string sum = "  x = a0";
  for (int i = 1; i < 60; ++i)
    sum += " + a" + std::to_string(i);
  std::istringstream lines(fitted(sum + ";\n"));
  std::string joined;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), lineLength);
    joined += (joined.empty() ? "" : " ") + line.substr(joined.empty() ? 0 : line.find_first_not_of(' '));
  }
  EXPECT_EQ(joined, sum + ";");
}

TEST(BodyCode, CommentsStayComments) {
  std::string ops = "// nn.add";
  while (ops.size() < 300)
    ops += " + nn.mul";
  std::istringstream lines(fitted(ops + "  model.layers.0\n"));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("//")) << line;
    EXPECT_LE(line.size(), lineLength);
    EXPECT_NE(line.back(), ' ');
  }
}

TEST(BodyCode, WhatHasNoSpaceStays) {
  const std::string name(150, 'x'), directive = "#include \"" + std::string(150, 'y') + " z\"\n";
  EXPECT_EQ(fitted(name + "\n"), name + "\n");
  EXPECT_EQ(fitted(directive), directive);
}

TEST(BodyConfig, MembersOfATypeShareALine) {
  Config config("Config", "GemmConfig");
  config.setType("type", "f16");
  config.set("tile_m", 64);
  config.set("Copy", "copy_a", "Copy::Async");
  config.set("combined", true);
  config.set("tile_n", 128);
  EXPECT_EQ(config.text(), "struct Config : GemmConfig {\n"
                           "  using type = f16;\n"
                           "  static constexpr int tile_m = 64, tile_n = 128;\n"
                           "  static constexpr Copy copy_a = Copy::Async;\n"
                           "  static constexpr bool combined = true;\n"
                           "};\n");
  EXPECT_EQ(Config("Empty").text(), "struct Empty {\n};\n");
}
