// Caches of codes and sinks in attentions of serving engines: what is refused, and why.
#include "ModelBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusion::test {
namespace {

using proto::TensorProto;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

void textAttribute(proto::NodeProto &node, const std::string &name, const std::string &value) {
  auto &attribute = ModelBuilder::attribute(node, name, 0);
  attribute.set_type(proto::AttributeProto::STRING);
  attribute.set_s(value);
}

/// A decoding step over codes of `bits`, two heads of `size` elements of which the cache has `columns` bytes.
ModelBuilder step(int64_t bits, TensorProto::DataType codes, int64_t size, int64_t columns) {
  ModelBuilder b(17);
  b.importDomain("com.microsoft", 1);
  for (const char *name : {"q", "k", "v"})
    b.input(name, TensorProto::FLOAT16, {"2", "1", std::to_string(2 * size)});
  for (const char *name : {"past_key", "past_value"})
    b.input(name, codes, {"2", "2", "8", std::to_string(columns)});
  b.input("lengths", TensorProto::INT32, {"2"}).input("scale", TensorProto::FLOAT, {"1"});
  b.output("y").output("key").output("value");
  b.ints("eight", {8}, true);
  ModelBuilder::attribute(b.node("Cast", {"eight"}, {"total"}), "to", TensorProto::INT32);
  auto &node = b.node(
      "GroupQueryAttention",
      {"q", "k", "v", "past_key", "past_value", "lengths", "total", "", "", "", "", "", "scale", "scale"},
      {"y", "key", "value"}, "com.microsoft");
  ModelBuilder::attribute(node, "num_heads", 2);
  ModelBuilder::attribute(node, "kv_num_heads", 2);
  ModelBuilder::attribute(node, "kv_cache_bit_width", bits);
  textAttribute(node, "k_quant_type", "PER_TENSOR");
  textAttribute(node, "v_quant_type", "PER_TENSOR");
  return b;
}

TEST(CodedCaches, OfFourBits) {
  const std::string text = Importer().text(step(4, TensorProto::UINT8, 16, 8));
  EXPECT_THAT(text, AllOf(HasSubstr("nn.cache_write"), HasSubstr("tensor<2x2x8x8xui8>"),
                          HasSubstr("tensor<2x2x8x16xui8>"), HasSubstr("nn.attention")));
  EXPECT_THAT(Importer().text(step(8, TensorProto::INT8, 16, 16)), HasSubstr("nn.dequantize"));
}

TEST(CodedCaches, Refused) {
  auto error = [](int64_t bits, TensorProto::DataType codes, int64_t size, int64_t columns) {
    const std::string text = Importer().text(step(bits, codes, size, columns));
    EXPECT_THAT(text, StartsWith("error: "));
    return text;
  };
  EXPECT_THAT(error(2, TensorProto::UINT8, 16, 4), HasSubstr("a key/value cache of 2 bits is not supported"));
  EXPECT_THAT(error(4, TensorProto::INT8, 16, 8),
              HasSubstr("a key/value cache of codes of 4 bits in i8 is not supported"));
  EXPECT_THAT(error(8, TensorProto::UINT8, 16, 16),
              HasSubstr("a key/value cache of codes of ui8 is not supported"));
  EXPECT_THAT(error(4, TensorProto::UINT8, 15, 8),
              HasSubstr("a key/value cache of 4 bits with heads of 15 elements"));
  error(4, TensorProto::UINT8, 16, 16); // as many bytes as elements
}

/// Two tokens of one sequence, with sinks of `heads` heads where there are two.
std::string paged(int64_t heads) {
  ModelBuilder b(17);
  b.importDomain("com.microsoft", 1);
  for (const char *name : {"q", "k", "v"})
    b.input(name, TensorProto::FLOAT16, {"2", "32"});
  for (const char *name : {"key_cache", "value_cache"})
    b.input(name, TensorProto::FLOAT16, {"pages", "8", "2", "16"});
  b.input("cumulative", TensorProto::INT32, {"2"}).input("past", TensorProto::INT32, {"1"});
  b.input("table", TensorProto::INT32, {"1", "3"});
  b.input("sink", TensorProto::FLOAT16, {std::to_string(heads)});
  b.output("y").output("key").output("value");
  auto &node =
      b.node("PagedAttention",
             {"q", "k", "v", "key_cache", "value_cache", "cumulative", "past", "table", "", "", "", "sink"},
             {"y", "key", "value"}, "com.microsoft");
  ModelBuilder::attribute(node, "num_heads", 2);
  ModelBuilder::attribute(node, "kv_num_heads", 2);
  return Importer().text(b);
}

TEST(PagedAttention, Sinks) {
  EXPECT_THAT(paged(2), AllOf(HasSubstr("nn.pad"), HasSubstr("nn.attention")));
  EXPECT_THAT(paged(3), AllOf(StartsWith("error: "), HasSubstr("head_sink is not one score of each head")));
}

} // namespace
} // namespace fusion::test
