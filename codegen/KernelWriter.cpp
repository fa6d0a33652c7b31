#include "codegen/KernelWriter.h"

#include "codegen/plan/Comments.h"
#include "ir/base/Hash.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;

namespace fusion {

/// Stands for the kernel's name until the text is complete.
static constexpr llvm::StringLiteral nameMark = "@kernel@";

llvm::StringRef sourceType(DType type) {
  switch (type) {
  case DType::Bool:
    return "bool";
  case DType::I8:
  case DType::I4:
    return "i8";
  case DType::U8:
  case DType::U4:
    return "u8";
  case DType::I16:
    return "i16";
  case DType::U16:
    return "u16";
  case DType::I32:
    return "i32";
  case DType::U32:
    return "u32";
  case DType::I64:
    return "i64";
  case DType::U64:
    return "u64";
  case DType::F8E4M3:
    return "f8e4m3";
  case DType::F8E5M2:
    return "f8e5m2";
  case DType::F16:
    return "f16";
  case DType::BF16:
    return "bf16";
  case DType::F32:
    return "f32";
  case DType::F64:
    return "f64";
  }
  llvm_unreachable("all types handled");
}

void KernelWriter::line(const llvm::Twine &text) {
  std::string content = text.str();
  if (llvm::StringRef(content).starts_with("}"))
    --indent;
  body.append(2 * indent, ' ');
  body += content;
  body += '\n';
  if (llvm::StringRef(content).ends_with("{"))
    ++indent;
}

void KernelWriter::blank() { body += '\n'; }

void KernelWriter::comment(Operation *op) {
  std::string where = locationName(op->getLoc());
  line("// " + op->getName().getStringRef() + (where.empty() ? "" : "  " + where));
}

std::string KernelWriter::input(unsigned index) {
  auto [place, isNew] = inputs.try_emplace(index);
  if (isNew)
    place->second = {KernelPlan::Parameter::Kind::Pointer,
                     ("const " + sourceType(dtype(region.inputs[index])) + " *").str(),
                     ("in" + llvm::Twine(index)).str()};
  if (index < views.size() && isPacked(views[index]))
    return ("packed<" + sourceType(dtype(region.inputs[index])) + ">(" + place->second.name + ")").str();
  return place->second.name;
}

std::string KernelWriter::output(unsigned index) {
  auto [place, isNew] = outputs.try_emplace(index);
  if (isNew)
    place->second = {KernelPlan::Parameter::Kind::Pointer,
                     (sourceType(dtype(region.outputs[index])) + " *").str(),
                     ("out" + llvm::Twine(index)).str()};
  return place->second.name;
}

std::string KernelWriter::exchange() {
  exchanged = {KernelPlan::Parameter::Kind::Pointer, "Exchange *", "exchange"};
  return exchanged->name;
}

std::string KernelWriter::size(const Dim &dim) {
  if (std::optional<int64_t> value = dim.constant())
    return *value < 0 ? "(" + std::to_string(*value) + ")" : std::to_string(*value);
  for (const auto &[known, parameter] : sizes)
    if (known == dim)
      return parameter.name;
  sizes.push_back({dim, {KernelPlan::Parameter::Kind::Int64, "i64", "n" + std::to_string(sizes.size())}});
  return sizes.back().second.name;
}

void KernelWriter::declare(const llvm::Twine &text) { tables += (text + "\n").str(); }

std::string KernelWriter::table(DType type, llvm::ArrayRef<std::string> literals) {
  std::string name = fresh((nameMark + "_table").str());
  tables += ("CONSTANT " + sourceType(type) + " " + name + "[" + llvm::Twine(literals.size()) + "] = {" +
             llvm::join(literals, ", ") + "};\n")
                .str();
  return name;
}

std::string KernelWriter::fresh(llvm::StringRef stem) { return (stem + llvm::Twine(stems[stem]++)).str(); }

std::string KernelWriter::address(const View &view, llvm::ArrayRef<std::string> index) {
  std::string sum;
  auto add = [&](llvm::StringRef term) { sum += sum.empty() ? term.str() : (" + " + term).str(); };
  if (!(view.offset == Dim(0)))
    add(size(view.offset));
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (index[i] == "0" || view.strides[i] == Dim(0) || view.shape[i] == Dim(1))
      continue;
    add(view.strides[i] == Dim(1) ? index[i] : index[i] + " * " + size(view.strides[i]));
  }
  return sum.empty() ? "0" : sum;
}

std::string KernelWriter::address(const DimShape &shape, llvm::ArrayRef<std::string> index) {
  return address(View::contiguous({}, shape), index);
}

llvm::SmallVector<std::string> KernelWriter::delinearize(const std::string &linear, const DimShape &shape,
                                                         bool narrow) {
  llvm::SmallVector<std::string> index(shape.size(), "0");
  llvm::SmallVector<size_t> dims; // that need a variable
  for (size_t i = 0; i < shape.size(); ++i)
    if (!(shape[i] == Dim(1)))
      dims.push_back(i);
  std::string rest = linear;
  const std::string cast = narrow ? "(u32)" : "";
  while (!dims.empty()) {
    size_t dim = dims.pop_back_val();
    if (dims.empty()) {
      index[dim] = rest;
      break;
    }
    index[dim] = fresh("i");
    line("const i64 " + index[dim] + " = " + cast + rest + " % " + cast + size(shape[dim]) + ";");
    std::string quotient = fresh("rest");
    line("const i64 " + quotient + " = " + cast + rest + " / " + cast + size(shape[dim]) + ";");
    rest = quotient;
  }
  return index;
}

static void replaceAll(std::string &text, llvm::StringRef from, llvm::StringRef to) {
  for (size_t at = text.find(from.data(), 0, from.size()); at != std::string::npos;
       at = text.find(from.data(), at + to.size(), from.size()))
    text.replace(at, from.size(), to.data(), to.size());
}

KernelDraft KernelWriter::finish(llvm::StringRef schedule, uint32_t blockThreads, uint32_t residentBlocks,
                                 uint32_t clusterBlocks) {
  using Argument = KernelDraft::Argument;
  KernelDraft draft;
  KernelPlan &kernel = draft.kernel;
  auto add = [&](const KernelPlan::Parameter &parameter, Argument argument) {
    kernel.parameters.push_back(parameter);
    draft.arguments.push_back(std::move(argument));
  };
  for (auto &[index, parameter] : inputs)
    add(parameter, {Argument::Kind::Input, index, 0});
  for (auto &[index, parameter] : outputs)
    add(parameter, {Argument::Kind::Output, index, 0});
  if (exchanged)
    add(*exchanged, {Argument::Kind::Exchange, 0, 0});
  std::string legend;
  for (auto &[dim, parameter] : sizes) {
    add(parameter, {Argument::Kind::Size, 0, dim});
    legend += "// " + parameter.name + " = " + dim.str() + "\n";
  }
  llvm::SmallVector<std::string> declared;
  for (const KernelPlan::Parameter &parameter : kernel.parameters)
    declared.push_back(parameter.type + (llvm::StringRef(parameter.type).ends_with("*") ? "" : " ") +
                       parameter.name);
  const std::string threads = std::to_string(blockThreads);
  const std::string macro = clusterBlocks > 1 ? "KERNEL_CLUSTER(" + threads + ", " + std::to_string(residentBlocks) + ", " +
                                                      std::to_string(clusterBlocks) + ")"
                            : residentBlocks  ? "KERNEL_RESIDENT(" + threads + ", " + std::to_string(residentBlocks) + ")"
                                           : "KERNEL(" + threads + ")";
  kernel.source =
      legend + tables +
      macro + " " + nameMark.str() + "(" + llvm::join(declared, ", ") + ") {\n" +
      body + "}\n";
  kernel.name = (schedule + "_" + contentHash(withoutComments(kernel.source)).substr(0, 12)).str();
  replaceAll(kernel.source, nameMark, kernel.name);
  kernel.schedule = schedule.str();
  kernel.blockX = blockThreads;
  kernel.usesPdl = llvm::StringRef(body).contains("pdl_wait()");
  return draft;
}

} // namespace fusion
