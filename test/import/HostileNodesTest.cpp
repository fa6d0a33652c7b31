// Every op with random inputs, shapes and attributes, few of which fit: what cannot be is an error of one
// line.
#include "ModelBuilder.h"
#include "NodeTestData.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

namespace fusion::test {
namespace {

using proto::TensorProto;

// clang-format off
const std::vector<std::string> integerAttributes = {
    "K", "N", "activation", "align_corners", "allowzero", "antialias", "axis", "batch_dims", "bits",
    "block_size", "blocksize", "causal", "ceil_mode", "channels_last", "count_include_pad", "dilation",
    "dim", "do_rotary", "dtype", "exclude_outside", "exclusive", "expert_weight_bits", "fmod",
    "gather_axis", "group", "group_size", "groups", "hidden_size", "input_forget", "interleaved",
    "inverse", "is_bidirectional", "is_causal", "isinf_only", "isnan_only", "k", "keepdims",
    "kv_num_heads", "largest", "layout", "left_window_size", "local_window_size", "max_distance",
    "new_axis", "noop_with_empty_axes", "normalized", "num_groups", "num_heads", "num_outputs",
    "num_scan_inputs", "offset_group", "onesided", "output_height", "output_width", "p", "q_num_heads",
    "quant_type", "quantize_axis", "reverse", "right_window_size", "rotary_embedding_dim",
    "rotary_interleaved", "sampling_ratio", "select_last_index", "signal_ndim", "size",
    "sparse_block_size", "step", "storage_order", "swiglu_fusion", "to", "transA", "transB",
    "unidirectional", "upper"};
// clang-format on
const std::vector<std::string> listAttributes = {
    "axes", "dilations",    "kernel_shape",     "output_padding", "output_shape", "pads",
    "perm", "pooled_shape", "qkv_hidden_sizes", "split",          "strides"};
const std::vector<std::pair<std::string, std::vector<std::string>>> wordAttributes = {
    {"activation_type", {"relu", "gelu", "silu", "swiglu", "?"}},
    {"auto_pad", {"SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "?"}},
    {"coordinate_transformation_mode",
     {"half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize", "?"}},
    {"direction", {"forward", "reverse", "bidirectional", "RIGHT", "?"}},
    {"equation", {"ij,jk->ik", "...i,...i", "ii", "a,b,c->", "->", ",", "i..j", "ab,bc", "iij->j", "ii->ii"}},
    {"metric", {"euclidean", "?"}},
    {"mode",
     {"nearest", "linear", "cubic", "constant", "edge", "reflect", "wrap", "DCR", "avg", "max", "bilinear",
      "?"}},
    {"nearest_mode", {"floor", "ceil", "round_prefer_ceil", "?"}},
    {"padding_mode", {"zeros", "border", "reflection", "?"}},
    {"quant_type", {"int", "?"}},
    {"reduction", {"none", "add", "?"}}};

class Generator {
public:
  explicit Generator(unsigned seed) : random(seed) {}

  ModelBuilder make(const std::string &op) {
    static constexpr int64_t opsets[] = {7, 9, 11, 13, 18, 20, 21, 23, 24};
    ModelBuilder model(opsets[below(std::size(opsets))]);
    model.importDomain("com.microsoft", 1);
    const size_t dot = op.rfind('.');
    const std::string domain = dot == op.npos ? "" : op.substr(0, dot);
    std::vector<std::string> inputs, outputs = {"y"};
    for (size_t i = 0, count = 1 + below(below(4) == 0 ? 9 : 4); i < count; ++i)
      inputs.push_back(input(model, "x" + std::to_string(i)));
    for (size_t i = 0, count = below(3); i < count; ++i)
      outputs.push_back("y" + std::to_string(i));
    auto &node = model.output("y").node(op.substr(dot == op.npos ? 0 : dot + 1), inputs, outputs, domain);
    for (size_t count = below(6); count > 0; --count)
      attribute(node);
    return model;
  }

private:
  size_t below(size_t limit) { return random() % limit; }
  template <class Values>
  const auto &one(const Values &values) {
    return values[below(std::size(values))];
  }

  int64_t integer() {
    static constexpr int64_t large[] = {INT64_MAX,        INT64_MIN,        INT64_MAX - 1,
                                        int64_t{1} << 62, int64_t{1} << 32, -(int64_t{1} << 32),
                                        int64_t{1} << 46, 1'000'000,        -1'000'000'000'000};
    return below(6) == 0 ? one(large) : static_cast<int64_t>(below(12)) - 3;
  }

  std::vector<int64_t> integers() {
    std::vector<int64_t> values(below(6));
    for (int64_t &value : values)
      value = integer();
    return values;
  }

  std::string input(ModelBuilder &model, const std::string &name) {
    switch (below(9)) {
    case 8: { // a sequence, or an optional that holds nothing
      std::vector<std::string> entries;
      for (size_t i = below(4); i > 0; --i)
        entries.push_back(input(model, name + "_" + std::to_string(i)));
      std::erase(entries, "");
      model.node(!entries.empty() ? "SequenceConstruct"
                 : below(2) == 0  ? "SequenceEmpty"
                                  : "Optional",
                 entries, {name});
      return name;
    }
    case 0:
      return "";
    case 1:
    case 2:
      model.ints(name, integers());
      return name;
    case 3:
      model.ints(name, {integer()}, /*scalar=*/true);
      return name;
    case 4: {
      std::vector<int64_t> dims(below(4));
      for (int64_t &dim : dims)
        dim = static_cast<int64_t>(below(5));
      model.weight(name, dims);
      return name;
    }
    default:
      break;
    }
    static constexpr int32_t types[] = {TensorProto::FLOAT, TensorProto::FLOAT,   TensorProto::FLOAT,
                                        TensorProto::INT64, TensorProto::FLOAT16, TensorProto::INT32,
                                        TensorProto::BOOL,  TensorProto::UINT8,   TensorProto::INT8};
    static const std::vector<std::string> sizes = {"0",  "1", "2", "3",     "4", "8",
                                                   "16", "n", "m", "n + 1", "1"};
    Dims dims(below(6));
    for (std::string &dim : dims)
      dim = one(sizes);
    model.input(name, one(types), dims);
    return name;
  }

  void attribute(proto::NodeProto &node) {
    switch (below(4)) {
    case 0:
      ModelBuilder::attribute(node, one(listAttributes), integers());
      break;
    case 1: {
      const auto &[name, words] = one(wordAttributes);
      ModelBuilder::attribute(node, name, one(words));
      break;
    }
    default:
      ModelBuilder::attribute(node, one(integerAttributes), integer());
      break;
    }
  }

  std::mt19937 random;
};

double cpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(HostileNodes, AreImportedOrRefused) {
  const char *text = std::getenv("FUSION_HOSTILE_NODES"); // of each op; more where there is time
  const char *only = std::getenv("FUSION_HOSTILE_OP");
  const unsigned count = text ? static_cast<unsigned>(std::atoi(text)) : 15;
  int imported = 0;
  for (const std::string &op : knownOps()) {
    if (only && op != only)
      continue;
    Importer importer; // which forgets what it has seen
    for (unsigned seed = 0; seed < count; ++seed) {
      SCOPED_TRACE(op + ", seed " + std::to_string(seed));
      if (text)
        std::fprintf(stderr, "%s %u\n", op.c_str(), seed); // the last line before a crash
      const double start = cpuSeconds();
      const ModelBuilder model = Generator(seed).make(op);
      const std::string path = importer.folder / "model.onnx";
      writeFile(path, model.model.SerializeAsString());
      const auto module = importer.import(path);
      EXPECT_LT(cpuSeconds() - start, 4);
      if (module) {
        ++imported;
        continue;
      }
      EXPECT_EQ(module.error().kind, ErrorKind::BadInput) << module.error().message;
      EXPECT_EQ(module.error().message.find('\n'), std::string::npos) << module.error().message;
    }
  }
  EXPECT_TRUE(only || imported > 0);
}

} // namespace
} // namespace fusion::test
