#include "api/KernelFiles.h"

#include "codegen/device/Includes.h"
#include "codegen/plan/Print.h"
#include "ir/base/MappedFile.h"
#include "ir/base/PlainText.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

namespace fusion {

namespace files = std::filesystem;

/// What is after the includes.
static std::string withoutIncludes(std::string_view source) {
  std::string text = splitIncludes(source).rest; // where each include is an empty line
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string compilableSource(const ProgramPlan &plan) {
  std::vector<std::string> includes;
  for (const KernelPlan &kernel : plan.kernels)
    if (!kernel.isLibraryCall)
      for (std::string &name : splitIncludes(kernel.source).includes)
        if (std::find(includes.begin(), includes.end(), name) == includes.end())
          includes.push_back(std::move(name));
  std::string text = expandIncludes(includes, Flavour::Cuda);
  const auto line = std::count(text.begin(), text.end(), '\n') + 2;
  text += fmt::format("#line {} \"kernels.cu\"\n", line);
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelPlan &kernel = plan.kernels[i];
    text += "\n" + kernelComment(plan, i);
    text += kernel.matmul ? "// by cuBLASLt\n"
            : kernel.isLibraryCall
                ? "// by the communication library\n"
                : fmt::format("namespace of_{} {{\n{}}}\n", kernel.name, withoutIncludes(kernel.source));
  }
  return text;
}

/// Name and text of every file that writeKernels() writes.
static std::vector<std::pair<std::string, std::string>> kernelFiles(const ProgramPlan &plan) {
  std::vector<std::pair<std::string, std::string>> contents;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const KernelPlan &kernel = plan.kernels[i];
    if (kernel.isLibraryCall)
      continue;
    std::string text = kernelComment(plan, i);
    if (kernel.source.find("#include \"") == std::string::npos)
      for (const std::string &name : splitIncludes(kernel.source).includes)
        text += fmt::format("#include \"{}\"\n", name);
    contents.emplace_back(kernel.name + ".cu", text + kernel.source);
  }
  for (const auto &[name, text] : deviceFiles())
    contents.emplace_back(name, text);
  return contents;
}

static std::optional<std::string> contentsOf(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || files::is_directory(path, ignored))
    return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Status writeKernels(const ProgramPlan &plan, const std::string &folder) {
  std::error_code problem;
  files::create_directories(folder, problem);
  if (problem || !files::is_directory(folder, problem))
    return environment(folder + ": cannot be made a folder");
  const auto contents = kernelFiles(plan);
  auto pathOf = [&](const std::string &name) { return (files::path(folder) / name).string(); };
  for (const auto &[name, text] : contents)
    if (auto there = contentsOf(pathOf(name)); there && *there != text)
      return badInput(pathOf(name) + ": has other contents, which would be lost: choose another folder");
  for (const auto &[name, text] : contents)
    if (Status status = writeFileAtomically(pathOf(name), text); !status)
      return status;
  return {};
}

/// How many letters differ at least (Levenshtein).
static size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t before = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, before + (a[i] != b[j])});
      before = above;
    }
  }
  return row.back();
}

static Error unknownKernel(const ProgramPlan &plan, const std::string &name) {
  std::vector<std::string> names;
  for (const KernelPlan &kernel : plan.kernels)
    if (!kernel.isLibraryCall)
      names.push_back(kernel.name);
  std::stable_sort(names.begin(), names.end(), [&](const std::string &a, const std::string &b) {
    const bool partOfA = a.find(name) != std::string::npos, partOfB = b.find(name) != std::string::npos;
    return partOfA != partOfB ? partOfA : distance(a, name) < distance(b, name);
  });
  names.resize(std::min<size_t>(names.size(), 3));
  return badInput(fmt::format("the plan has no kernel '{}'{}{}", name, names.empty() ? "" : "; like it: ",
                              fmt::join(names, ", ")));
}

/// Lines that do not compile unless the kernel takes what the plan passes.
static std::string signatureCheck(const KernelPlan &kernel) {
  std::vector<std::string> types, parameters;
  for (const KernelPlan::Parameter &parameter : kernel.parameters) {
    types.push_back(parameter.type);
    parameters.push_back(parameter.type + (parameter.type.ends_with('*') ? "" : " ") + parameter.name);
  }
  return fmt::format(
      "template <class A, class B> struct fusion_same {{ enum {{ value = 0 }}; }};\n"
      "template <class A> struct fusion_same<A, A> {{ enum {{ value = 1 }}; }};\n"
      "static_assert(fusion_same<decltype({}), void({})>::value, \"the plan calls {}({})\");\n",
      kernel.name, fmt::join(types, ", "), kernel.name, fmt::join(parameters, ", "));
}

/// The file's text, its includes found in its folder where they are there, its lines under its own name.
static std::string editedSource(const std::string &path, const std::string &text, const KernelPlan &kernel) {
  const KernelText parts = splitIncludes(text);
  const files::path folder = files::absolute(path).lexically_normal().parent_path();
  std::string source;
  for (const std::string &name : parts.includes) {
    std::error_code ignored;
    const files::path beside = folder / name;
    source += fmt::format("#include \"{}\"\n", files::exists(beside, ignored) ? beside.string() : name);
  }
  return fmt::format("{}#line 1 \"{}\"\n{}\n#line 1 \"{} (its parameters)\"\n{}", source, path, parts.rest,
                     path, signatureCheck(kernel));
}

Status replaceKernels(ProgramPlan &plan, std::span<const KernelFile> edited) {
  for (const KernelFile &file : edited) {
    auto kernel = std::find_if(plan.kernels.begin(), plan.kernels.end(), [&](const KernelPlan &candidate) {
      return candidate.name == file.kernel && !candidate.isLibraryCall;
    });
    if (kernel == plan.kernels.end())
      return unknownKernel(plan, file.kernel);
    const std::optional<std::string> text = contentsOf(file.path);
    if (!text)
      return badInput(file.path + ": cannot be read");
    const std::string place = files::absolute(file.path).string();
    if (!isPlainText(place) || place.find('"') != std::string::npos)
      return badInput(file.path + ": source cannot name such a file: rename it, or its folder");
    kernel->source = editedSource(file.path, *text, *kernel);
  }
  return {};
}

} // namespace fusion
