// Tensors, safetensors files, mapped files and atomic writes.
#include "ir/base/MappedFile.h"
#include "ir/base/Safetensors.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

using namespace fusion;

namespace {

class Files : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "fusion-base-XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::string path(const std::string &name) const { return (folder / name).string(); }

  std::string write(const std::string &name, std::string_view contents) const {
    std::ofstream(path(name), std::ios::binary) << contents;
    return path(name);
  }

  std::string read(const std::string &name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  size_t fileCount() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }

  /// A file with this header (its length in front) and this many bytes of data.
  std::string writeTensors(std::string_view header, size_t dataSize) const {
    uint64_t size = header.size();
    std::string contents(reinterpret_cast<const char *>(&size), sizeof(size));
    contents += header;
    contents.append(dataSize, '\1');
    return write("made.safetensors", contents);
  }

  std::filesystem::path folder;
};

Tensor floats(Shape shape, std::vector<float> values) {
  return Tensor::of<float>(DType::F32, std::move(shape), values);
}

TEST(Tensor, SharesReshapesAndConverts) {
  Tensor tensor = floats({2, 3}, {1, 2, 3, 4, 5, -6});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0u);
  EXPECT_EQ(tensor.reshaped({6}).data(), tensor.data());
  EXPECT_NE(tensor.clone().data(), tensor.data());
  EXPECT_EQ(tensor.convertedTo(DType::F32).data(), tensor.data());
  EXPECT_EQ(tensor.convertedTo(DType::BF16).toInts(), (std::vector<int64_t>{1, 2, 3, 4, 5, -6}));
  EXPECT_EQ(Tensor::zeros(DType::I64, {}).toInts(), std::vector<int64_t>{0});
  EXPECT_EQ(Tensor::zeros(DType::F16, {0, 4}).bytes(), 0u);
  EXPECT_EQ(shapeString(tensor.shape()), "2x3");
  EXPECT_EQ(shapeString(Shape{}), "scalar");
}

/// A corner of [2, 2, 4, 3], transposed, every second column of it: element by element what the strides say.
TEST(Tensor, ViewsWithGaps) {
  std::vector<float> values(48);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  Tensor whole = floats({2, 2, 4, 3}, values);
  auto view = [&](Shape shape, Shape strides) {
    return Tensor::wrapStrided(DType::F32, std::move(shape), std::move(strides), whole.data(),
                               whole.storage());
  };
  Tensor corner = view({2, 2, 2, 3}, {24, 12, 3, 1});
  EXPECT_FALSE(corner.isDense());
  EXPECT_EQ(corner.bytes(), 2u * 2 * 2 * 3 * 4);
  auto rows = corner.rows();
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->count, 4u);
  EXPECT_EQ(rows->bytes, 24u);
  EXPECT_EQ(rows->pitch, 48u);
  std::vector<float> expected;
  for (float start : {0.f, 12.f, 24.f, 36.f})
    for (float i = 0; i < 6; ++i)
      expected.push_back(start + i);
  EXPECT_EQ(corner.toFloats(), expected);
  EXPECT_TRUE(corner.clone().isDense());
  EXPECT_EQ(corner.convertedTo(DType::I64).toInts().back(), 41);
  EXPECT_EQ(compare(corner, corner.dense())->maxAbs, 0);
  EXPECT_EQ(view({2, 3}, {1, 12}).toFloats(), (std::vector<float>{0, 12, 24, 1, 13, 25}));
  EXPECT_FALSE(view({2, 3}, {1, 12}).rows());
  EXPECT_FALSE(view({2, 2, 3}, {24, 3, 1}).rows()->count == 1);
  EXPECT_FALSE(view({2, 2, 3}, {20, 12, 1}).rows());
  EXPECT_EQ(view({1, 4, 3}, {99, 3, 1}).rows()->count, 1u);
  EXPECT_EQ(view({2, 0, 3}, {12, 3, 1}).toFloats().size(), 0u);
}

TEST(Tensor, CompareIsSafeForNaN) {
  float nan = std::nanf(""), infinity = INFINITY;
  Result<Difference> same = compare(floats({3}, {1, nan, infinity}), floats({3}, {1, nan, infinity}));
  ASSERT_TRUE(same);
  EXPECT_EQ(same->maxAbs, 0);
  EXPECT_EQ(same->relativeL2, 0);
  EXPECT_EQ(same->worstIndex, -1);
  for (auto [actual, expected] : {std::pair{nan, 1.0f},
                                  {1.0f, nan},
                                  {infinity, 1.0f},
                                  {infinity, -infinity},
                                  {1.0f, infinity},
                                  {nan, infinity}}) {
    Result<Difference> wrong = compare(floats({2}, {1, actual}), floats({2}, {1, expected}));
    ASSERT_TRUE(wrong);
    EXPECT_TRUE(std::isinf(wrong->maxAbs)) << actual << " " << expected;
    EXPECT_TRUE(std::isinf(wrong->relativeL2)) << actual << " " << expected;
    EXPECT_EQ(wrong->worstIndex, 1);
  }
  Result<Difference> off = compare(floats({2}, {3, 4.5f}), floats({2}, {3, 4}).convertedTo(DType::BF16));
  ASSERT_TRUE(off);
  EXPECT_EQ(off->maxAbs, 0.5);
  EXPECT_DOUBLE_EQ(off->relativeL2, 0.1);
  Result<Difference> zero = compare(floats({1}, {2}), floats({1}, {0}));
  EXPECT_EQ(zero->relativeL2, 2);
  EXPECT_FALSE(compare(floats({1}, {2}), floats({}, {2})));
}

TEST_F(Files, SafetensorsRoundTrip) {
  NamedTensors tensors;
  int seed = 0;
  for (DType type :
       {DType::Bool, DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64,
        DType::U64, DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32, DType::F64}) {
    Tensor tensor = Tensor::uninitialized(type, {3, ++seed});
    for (size_t i = 0; i < tensor.bytes(); ++i)
      tensor.as<uint8_t>()[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(seed));
    tensors.emplace("tensor \"" + std::string(name(type)) + "\"", tensor);
  }
  tensors.emplace("scalar", floats({}, {2.5f}));
  tensors.emplace("empty", Tensor::zeros(DType::F32, {0, 7}));
  ASSERT_TRUE(writeSafetensors(path("t.safetensors"), tensors));
  EXPECT_EQ(fileCount(), 1u);
  Result<NamedTensors> again = readSafetensors(path("t.safetensors"));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->size(), tensors.size());
  for (const auto &[key, tensor] : tensors) {
    const Tensor &other = again->at(key);
    EXPECT_EQ(other.type(), tensor.type());
    EXPECT_EQ(other.shape(), tensor.shape());
    EXPECT_EQ(std::memcmp(other.data(), tensor.data(), tensor.bytes()), 0) << key;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(other.data()) % byteSize(other.type()), 0u);
  }
  // A tensor keeps its mapping after the map and the file are gone.
  Tensor kept = again->at("scalar");
  again = NamedTensors();
  std::filesystem::remove(path("t.safetensors"));
  EXPECT_EQ(kept.toFloats(), std::vector<float>{2.5f});
}

TEST_F(Files, SafetensorsRefusesToWriteWhatItCannotHold) {
  EXPECT_FALSE(writeSafetensors(path("t"), {{"x", Tensor::zeros(DType::I4, {2})}}));
  EXPECT_FALSE(writeSafetensors(path("t"), {{"\xff", Tensor::zeros(DType::I8, {2})}}));
  EXPECT_FALSE(writeSafetensors(path("t"), {{"__metadata__", Tensor::zeros(DType::I8, {2})}}));
  EXPECT_FALSE(writeSafetensors(path("missing/t"), {{"x", Tensor::zeros(DType::I8, {2})}}));
  EXPECT_EQ(fileCount(), 0u);
}

TEST_F(Files, MisalignedTensorsAreCopied) {
  std::string file =
      writeTensors(R"({"__metadata__":{"a":"b"},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                   R"("f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
                   9);
  Result<NamedTensors> tensors = readSafetensors(file);
  ASSERT_TRUE(tensors) << tensors.error().message;
  EXPECT_EQ(tensors->size(), 2u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors->at("f").data()) % 4, 0u);
  EXPECT_EQ(tensors->at("f").as<uint32_t>()[1], 0x01010101u);
}

TEST_F(Files, CorruptedSafetensors) {
  struct Case {
    std::string_view header;
    size_t dataSize;
    std::string_view reason;
  };
  for (
      const Case &bad : std::vector<Case>{
          {"{", 0, "JSON"},
          {"[]", 0, "JSON"},
          {"", 0, "JSON"},
          {R"({"x":1})", 0, "'x'"},
          {R"({"x":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "F33"},
          {R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "dim"},
          {R"({"x":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "dim"},
          {R"({"x":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape"},
          {R"({"x":{"shape":[1],"data_offsets":[0,4]}})", 4, "dtype"},
          {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "fit"},
          {R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "fit"},
          {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "outside"},
          {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "outside"},
          {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "data_offsets"},
          {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets"},
          {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
           6, "overlaps"},
          {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6, "no tensor"},
          {R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 6, "no tensor"},
          {R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
           2, "twice"}}) {
    std::string file = writeTensors(bad.header, bad.dataSize);
    Result<NamedTensors> tensors = readSafetensors(file);
    ASSERT_FALSE(tensors) << bad.header;
    EXPECT_EQ(tensors.error().kind, ErrorKind::BadInput);
    EXPECT_NE(tensors.error().message.find(file), std::string::npos) << tensors.error().message;
    EXPECT_NE(tensors.error().message.find(bad.reason), std::string::npos) << tensors.error().message;
  }
  EXPECT_FALSE(readSafetensors(write("short", "abc")));
  EXPECT_FALSE(readSafetensors(write("huge", std::string(8, '\xff') + "{}")));
  EXPECT_FALSE(readSafetensors(write("empty", "")));
  EXPECT_FALSE(readSafetensors(path("missing")));
}

TEST_F(Files, EveryTruncationIsAnError) {
  ASSERT_TRUE(writeSafetensors(path("whole"), {{"x", floats({3}, {1, 2, 3})}, {"y", floats({1}, {4})}}));
  std::string contents = read("whole");
  for (size_t length = 0; length < contents.size(); ++length)
    EXPECT_FALSE(readSafetensors(write("cut", std::string_view(contents).substr(0, length)))) << length;
}

TEST_F(Files, MappingIsSharedUntilTheFileChanges) {
  write("f", "one");
  auto first = MappedFile::open(path("f"));
  ASSERT_TRUE(first);
  auto second = MappedFile::open((folder / "." / "f").string());
  ASSERT_TRUE(second);
  EXPECT_EQ(*first, *second);
  ASSERT_TRUE(writeFileAtomically(path("f"), "other"));
  auto third = MappedFile::open(path("f"));
  ASSERT_TRUE(third);
  EXPECT_NE(*first, *third);
  EXPECT_EQ((*first)->bytes().size(), 3u);
  EXPECT_EQ((*third)->bytes().size(), 5u);
  auto empty = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(empty);
  EXPECT_TRUE((*empty)->bytes().empty());
}

TEST_F(Files, MappingErrorsNameThePath) {
  for (const std::string &bad : {path("missing"), folder.string()}) {
    auto file = MappedFile::open(bad);
    ASSERT_FALSE(file);
    EXPECT_NE(file.error().message.find(bad), std::string::npos);
  }
}

TEST_F(Files, AtomicWriteReplacesAndLeavesNothingElse) {
  ASSERT_TRUE(writeFileAtomically(path("f"), "one"));
  ASSERT_EQ(::chmod(path("f").c_str(), 0640), 0);
  std::filesystem::create_symlink("f", path("link"));
  ASSERT_TRUE(writeFileAtomically(path("link"), "two"));
  EXPECT_EQ(read("f"), "two");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  struct stat facts{};
  ASSERT_EQ(::stat(path("f").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640u);
  EXPECT_EQ(fileCount(), 2u);
  EXPECT_FALSE(writeFileAtomically(folder.string(), "x"));
  EXPECT_FALSE(writeFileAtomically(path("missing/f"), "x"));
  EXPECT_TRUE(writeFileAtomically("/dev/null", "x"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(fileCount(), 2u);
}

} // namespace
